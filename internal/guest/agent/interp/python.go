package interp

import _ "embed"

//go:embed driver.py
var pythonDriver string

// Paths returns the usual paths of the interpreters.
func Paths() []string { return []string{"/usr/bin/python3", "/usr/local/bin/python3"} }

// Python returns the language "python": python3 with the embedded driver.
func Python() Language {
	return Language{
		Name: "python",
		// Without -u, prints are flushed once at the end of an evaluation.
		Programs: []string{"python3", "python"},
		Args:     []string{"-c", pythonDriver},
		Env:      []string{"PYTHONUTF8=1", "PYTHON_HISTORY=/dev/null"},
	}
}
