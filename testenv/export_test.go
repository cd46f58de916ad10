package testenv

// Alive is for the proof that what a test process started dies with it.
func Alive(pid int) bool { return alive(pid) }
