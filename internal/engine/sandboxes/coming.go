package sandboxes

import "github.com/forkd/forkd/internal/sandbox"

// Coming returns a sandbox that runs, or that is being paused or resumed: its next turn knows what came of that.
// Any other is refused as by Running.
func Coming(t *Table, id string) (*Sandbox, error) {
	s, info, err := t.Find(id)
	if err != nil {
		return nil, err
	}
	if info.Status == sandbox.StatusPausing || info.Status == sandbox.StatusResuming {
		return s, nil
	}
	s, _, err = t.Running(id)
	return s, err
}
