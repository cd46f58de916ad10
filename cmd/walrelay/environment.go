package main

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// prefix begins the name of every variable that is walrelay's own.
const prefix = "WALRELAY_"

// environment is the process's environment by name.
type environment map[string]string

func parseEnvironment(env []string) environment {
	e := make(environment, len(env))
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		e[name] = value
	}
	return e
}

// declared is one setting as the struct Settings declares it.
type declared struct {
	variable, flag, def, unit, help, group string
	choices                                []string
	value                                  kind
}

// declaredIn lists the settings of a parser, in the order of their declaration, and tells each its name.
func declaredIn(model *kong.Application) []declared {
	var settings []declared
	for _, flag := range model.Flags {
		value, ok := reflect.TypeAssert[kind](flag.Target.Addr())
		if !ok {
			continue
		}
		value.given().variable = variable(flag.Name)
		d := declared{
			variable: variable(flag.Name), flag: flag.Name, def: flag.Default,
			unit: flag.Tag.Get("unit"), help: flag.Help, group: flag.Group.Key, value: value,
		}
		if flag.Tag.Has("choices") {
			d.choices = strings.Split(flag.Tag.Get("choices"), ",")
		}
		settings = append(settings, d)
	}
	return settings
}

func variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// resolver takes settings that no flag sets from env. kong's own env tags read the process's
// environment, which tests cannot share.
func resolver(env environment) kong.ResolverFunc {
	return func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if _, ok := reflect.TypeAssert[kind](flag.Target.Addr()); !ok {
			return nil, nil
		}
		value, ok := env[variable(flag.Name)]
		_, text := reflect.TypeAssert[*Text](flag.Target.Addr())
		if !ok || value == "" && !text {
			return nil, nil // compose files write ${X:-} for: unset; only a text can be meant to be empty
		}
		return value, nil
	}
}

// checkUnknown lists variables that look like settings but are none: a typo must not be silent.
func (e environment) checkUnknown(settings []declared, f *faults) {
	var unknown []string
	for name, value := range e {
		known := slices.ContainsFunc(settings, func(d declared) bool { return d.variable == name })
		if strings.HasPrefix(name, prefix) && !known && !serviceLink(name, value) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		// The value is not shown: it may be a secret under a misspelt name.
		f.add(&input{variable: name, raw: e[name], secret: true}, "is not a setting"+nearest(name, settings))
	}
}

// serviceLink recognises the variables that Kubernetes and Docker links put into every container for
// a service whose name begins with "walrelay".
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
func serviceLink(name, value string) bool {
	return serviceVariable.MatchString(name) ||
		strings.HasSuffix(name, "_PORT") && (strings.HasPrefix(value, "tcp://") || strings.HasPrefix(value, "udp://"))
}

var serviceVariable = regexp.MustCompile(
	`^WALRELAY_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// nearest suggests the setting whose name is closest, unless none is close.
func nearest(name string, settings []declared) string {
	best, distance := "", len(name)-len(prefix)
	for _, d := range settings {
		if n := editDistance(name, d.variable); n < distance {
			best, distance = d.variable, n
		}
	}
	if best == "" || distance > (len(name)-len(prefix)+1)/2 {
		return ""
	}
	return "; did you mean " + best + "?"
}

// editDistance is Levenshtein's: the fewest bytes to insert, delete or replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
