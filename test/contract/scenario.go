package contract

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/goccy/go-yaml"
)

// Scenario is a list of calls that one client makes in order.
type Scenario struct {
	Name string `yaml:"scenario"`
	// Only is "fake" or "real" for a scenario that makes sense over one kind of daemon only. Why is
	// required with it.
	Only string `yaml:"only"`
	Why  string `yaml:"why"`
	// Short selects the scenario for the run of all clients over real VMs in make test.
	Short bool   `yaml:"short"`
	Steps []Step `yaml:"steps"`
}

// Step is one call and its expected end. Strings may contain ${name}, which stands for a saved value.
type Step struct {
	Call string         `yaml:"call"` // operation ID of the OpenAPI document, or agent.exec, agent.read, ...
	Args map[string]any `yaml:"args"` // parameters by name; "body" is the JSON body
	// Expect maps paths in the answer to values: "0.id", "children.#" (length), "." (all). A value
	// in slashes is a regular expression. "*" is any value but null.
	Expect map[string]any    `yaml:"expect"`
	Error  *ExpectedError    `yaml:"error"` // the call must fail so
	Save   map[string]string `yaml:"save"`  // name of a value to its path in the answer
	// Retry repeats the call until it meets the expectation, for at most a minute.
	Retry bool `yaml:"retry"`
}

// ExpectedError describes the end of a call that fails.
type ExpectedError struct {
	Code   string `yaml:"code"`
	Reason string `yaml:"reason"` // empty: any
}

// Load reads the scenarios of a directory. Names must be unique, and unknown fields are errors.
func Load(dir string) ([]Scenario, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []Scenario
	seen := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var some []Scenario
		if err := yaml.NewDecoder(bytes.NewReader(content), yaml.Strict()).Decode(&some); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, s := range some {
			if s.Name == "" || seen[s.Name] || len(s.Steps) == 0 || s.Only != "" && s.Why == "" {
				return nil, fmt.Errorf("%s: scenario %q has no name, a taken name, no steps, or no reason for only", file, s.Name)
			}
			seen[s.Name] = true
			all = append(all, s)
		}
	}
	return all, nil
}

// Calls returns the operations that the scenario calls successfully or not.
func (s Scenario) Calls() []string {
	calls := make([]string, 0, len(s.Steps))
	for _, step := range s.Steps {
		calls = append(calls, step.Call)
	}
	return calls
}

// saved are values that later steps refer to.
type saved map[string]any

var reference = regexp.MustCompile(`\$\{([a-z_0-9]+)\}`)

// fill replaces references in v. A string that is one reference becomes the value itself.
func (s saved) fill(v any) any {
	switch v := v.(type) {
	case string:
		if m := reference.FindStringSubmatch(v); m != nil && m[0] == v {
			return s[m[1]]
		}
		return reference.ReplaceAllStringFunc(v, func(r string) string { return fmt.Sprint(s[r[2:len(r)-1]]) })
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = s.fill(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = s.fill(e)
		}
		return out
	}
	return v
}
