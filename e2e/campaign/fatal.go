package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/walrelay/walrelay/testenv"
)

// fatal is the end of a process with exit code 1, after which a person has to act. The next start ends
// in the same way, so that restarting hides it.
type fatal struct {
	instance string
	process  *testenv.Process
	message  string // the last word of its log
}

// fatals are those that no fault has foreseen.
func (r *relays) fatals() []fatal {
	var found []fatal
	for _, in := range r.two {
		for _, p := range in.all() {
			if p.Running() || p.Wait(r.w.t, stepLimit) != 1 || r.foreseen[p] {
				continue
			}
			f := fatal{instance: in.name, process: p}
			for line := range strings.Lines(p.Log()) {
				var entry struct{ Level, Message, Error string }
				if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "error" {
					f.message = entry.Error
				}
			}
			found = append(found, f)
		}
	}
	return found
}

// unforeseen are the ends that were not to happen, each message once.
func (r *relays) unforeseen() []string {
	var found []string
	count := map[string]int{}
	for _, f := range r.fatals() {
		message := fmt.Sprintf("%s ended with exit code 1: %s", f.instance, f.message)
		if count[message]++; count[message] == 1 {
			found = append(found, message)
		}
	}
	return found
}
