package treetar

import "github.com/forkd/forkd/internal/leaf/guesttext"

// maxTold limits the number of failures in a report.
const maxTold = 100

// Report is the agent's answer to an uploaded tree.
type Report struct {
	Copied int       `json:"copied"`           // files, directories and links
	Failed []Failure `json:"failed,omitempty"` // at most maxTold; the rest is in More
	More   int       `json:"more,omitempty"`   // further failures
	// Broken reports that the stream ended before its last entry.
	Broken bool `json:"broken,omitempty"`
	// Stopped is set if the copy ended early for another reason, such as a full disk.
	Stopped *Stop `json:"stopped,omitempty"`
}

// Failure describes a file that could not be created.
type Failure struct {
	Name    string `json:"name"`    // in the tree
	Message string `json:"message"` // one sentence for people
}

// Stop is the reason for the early end of a copy.
type Stop struct {
	Code    int    `json:"code"`    // an HTTP status
	Message string `json:"message"` // the cause, for people
}

// Fail adds a failure.
func (r *Report) Fail(name, message string) {
	if len(r.Failed) == maxTold {
		r.More++
		return
	}
	name, message = guesttext.Of(name).String(), guesttext.Of(message).String() // valid for JSON
	r.Failed = append(r.Failed, Failure{name, message})
}
