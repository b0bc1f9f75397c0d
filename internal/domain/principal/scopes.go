package principal

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Scopes is a set of a key's permissions.
type Scopes uint8

const (
	Read   Scopes = 1 << iota // read objects
	Run                       // use existing sandboxes: exec, eval, files, ports, pause and resume
	Fork                      // create and delete sandboxes and snapshots
	Admin                     // keys and pools; with the operator's keys also images and the store
	Layers                    // read the content of snapshots, as daemons do from each other

	All = Read | Run | Fork | Admin | Layers
)

// names returns the names in the order in which they are printed.
func names() []string { return []string{"read", "run", "fork", "admin", "layers"} }

// ParseScopes parses names of scopes. An empty list is an error.
func ParseScopes(list []string) (Scopes, error) {
	var s Scopes
next:
	for _, word := range list {
		for i, name := range names() {
			if word == name {
				s |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("scope %.40q: want %s", word, strings.Join(names(), ", "))
	}
	if s == 0 {
		return 0, fmt.Errorf("no scope: want one or more of %s", strings.Join(names(), ", "))
	}
	return s, nil
}

// Has reports whether s contains all of other.
func (s Scopes) Has(other Scopes) bool { return s&other == other }

// List returns the names of the scopes.
func (s Scopes) List() []string {
	out := []string{}
	for i, name := range names() {
		if s&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

func (s Scopes) String() string { return strings.Join(s.List(), ",") }

// MarshalJSON writes the list of names.
func (s Scopes) MarshalJSON() ([]byte, error) { return json.Marshal(s.List()) }

// UnmarshalJSON reads the list of names.
func (s *Scopes) UnmarshalJSON(b []byte) error {
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	read, err := ParseScopes(list)
	*s = read
	return err
}
