package treetar

import "github.com/forkd/forkd/internal/leaf/guesttext"

// maxTold bounds how many failures a report names.
const maxTold = 100

// Report is the agent's answer to a tree that it was sent.
type Report struct {
	Copied int       `json:"copied"` // files, directories and links
	Failed []Failure `json:"failed,omitempty"`
	More   int       `json:"more,omitempty"` // failures beyond those
	// Broken says that the stream ended before its last entry.
	Broken bool `json:"broken,omitempty"`
	// Stopped is the end too early for another reason, such as a full disk.
	Stopped *Stop `json:"stopped,omitempty"`
}

// Failure is what could not be made.
type Failure struct {
	Name    string `json:"name"` // in the tree
	Message string `json:"message"`
}

// Stop is why a copy ended too early.
type Stop struct {
	Code    int    `json:"code"` // as of an HTTP answer
	Message string `json:"message"`
}

// Fail adds a failure.
func (r *Report) Fail(name, message string) {
	if len(r.Failed) == maxTold {
		r.More++
		return
	}
	name, message = guesttext.Of(name).String(), guesttext.Of(message).String() // which JSON can hold
	r.Failed = append(r.Failed, Failure{name, message})
}
