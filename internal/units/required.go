package units

import (
	"fmt"

	"agentworks-deploy/internal/hosts"
)

// RequiredFaults says what is wrong with the keys that an environment file has to
// hold: each must stand in it exactly once (case V-03). It names keys, never
// values.
func RequiredFaults(file []hosts.Assignment, required []string) []string {
	times := map[string]int{}
	for _, a := range file {
		times[a.Name]++
	}
	var faults []string
	for _, key := range required {
		switch n := times[key]; n {
		case 0:
			faults = append(faults, key+" is missing")
		case 1:
		default:
			faults = append(faults, fmt.Sprintf("%s stands there %d times", key, n))
		}
	}
	return faults
}

// Stale gives those of the required keys that a running service holds with
// another value than the file, or not at all: it was started before the file
// changed, or something else overrides it. Values are compared and go nowhere.
func Stale(file, running []hosts.Assignment, required []string) []string {
	value := func(list []hosts.Assignment, name string) (string, bool) {
		for i := len(list) - 1; i >= 0; i-- {
			if list[i].Name == name {
				return list[i].Value, true
			}
		}
		return "", false
	}
	var stale []string
	for _, key := range required {
		want, there := value(file, key)
		got, has := value(running, key)
		if there && (!has || got != want) {
			stale = append(stale, key)
		}
	}
	return stale
}
