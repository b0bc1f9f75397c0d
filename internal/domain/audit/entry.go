package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// Result is what became of an action.
type Result string

// Results.
const (
	OK      Result = "ok"
	Refused Result = "refused" // it was not tried: the request, or who asked, did not allow it
	Failed  Result = "failed"
)

// Actions of the log itself. Those of requests have a table in httpapi.
const (
	ActionOpened  = "audit.opened"  // a daemon begins to write
	ActionClosed  = "audit.closed"  // a daemon stopped in good order
	ActionRolled  = "audit.rolled"  // the first line of a file that goes on from another
	ActionTorn    = "audit.torn"    // what precedes is the beginning of a line that was not written whole
	ActionCut     = "audit.cut"     // the head knew of lines that were not there any more
	ActionMissing = "audit.missing" // lines could not be written
	ActionChain   = "audit.chain"   // another chain begins; Note has its name
	ActionOthers  = "others"        // anonymous requests of too many kinds to tell apart
)

// Entry is a line of the log. Seq, Prev, and what is said to be the log's own, the log sets.
type Entry struct {
	Seq  uint64 `json:"seq"`  // 1 for the first line of all, one more for each
	Prev string `json:"prev"` // SHA-256 of the line before, without its newline, in hex
	// Time is when the action ended, in UTC.
	Time   time.Time `json:"time"`
	Action string    `json:"action"`
	Result Result    `json:"result"`
	// Request is the request's ID, as in the header Forkd-Request-Id.
	Request string `json:"request_id,omitempty"`
	Key     string `json:"key,omitempty"`      // ID of the API key that was shown
	KeyName string `json:"key_name,omitempty"` // its name
	Tenant  string `json:"tenant,omitempty"`   // whose it is; absent: the operator's
	// Principal is how the client proved who it is.
	Principal string `json:"principal,omitempty"`
	// Anonymous is true if the client proved no identity. Then Tenant and Key are empty.
	Anonymous bool   `json:"anonymous,omitempty"`
	Claim     string `json:"claim,omitempty"`  // kind of credential that an anonymous client showed
	Source    string `json:"source,omitempty"` // address of an anonymous client
	Sandbox   string `json:"sandbox,omitempty"`
	Snapshot  string `json:"snapshot,omitempty"`
	Image     string `json:"image,omitempty"`
	Object    string `json:"object,omitempty"` // what else it was about, such as a file's path
	Count     int    `json:"count,omitempty"`  // children asked for; requests or flows that this line counts
	Read      bool   `json:"read,omitempty"`   // it changes nothing
	Method    string `json:"method,omitempty"`
	Path      string `json:"path,omitempty"`
	Status    int    `json:"status,omitempty"`
	LatencyUS int64  `json:"latency_us"`
	UserAgent string `json:"user_agent,omitempty"`
	Error     string `json:"error,omitempty"`

	// The log's own.
	Chain string `json:"chain,omitempty"` // chain that Seq and Prev belong to; empty: the first one
	Lost  uint64 `json:"lost,omitempty"`  // entries lost since the last line that has a count of them
	Torn  string `json:"torn,omitempty"`  // ActionTorn: SHA-256 of what precedes this line and is none
	File  string `json:"file,omitempty"`  // ActionRolled: name of the file before
	// Dropped, of ActionRolled: the lines up to this one were removed, being the oldest.
	Dropped uint64 `json:"dropped,omitempty"`
	Head    uint64 `json:"head,omitempty"` // ActionCut: the last line that the head knew
	Note    string `json:"note,omitempty"`
}

// MaxLine bounds a line, its newline included.
const MaxLine = 64 << 10

// maxNames and the others bound, in bytes, what an entry takes of a request.
const (
	maxName  = 128
	maxPath  = 1000
	maxText  = 500
	maxAgent = 300
)

// clipped bounds what may come from outside.
func (e Entry) clipped() *Entry {
	for _, s := range []*string{&e.Source, &e.Claim, &e.Chain, &e.Action, &e.Request, &e.Key, &e.KeyName,
		&e.Tenant, &e.Principal, &e.Sandbox, &e.Snapshot, &e.Image, &e.Method, &e.File} {
		*s = guesttext.Clip(*s, maxName)
	}
	e.Path, e.Object = guesttext.Clip(e.Path, maxPath), guesttext.Clip(e.Object, maxPath)
	e.Error, e.Note = guesttext.Clip(e.Error, maxText), guesttext.Clip(e.Note, maxText)
	e.UserAgent = guesttext.Clip(e.UserAgent, maxAgent)
	return &e
}

// errNoLine is what is not a line of the log.
var errNoLine = errors.New("it is not a line of an audit log")

// Decode reads a line, without its newline. Fields that it does not know it leaves out.
func Decode(line []byte) (Entry, error) {
	var e Entry
	if len(line) >= MaxLine {
		return Entry{}, fmt.Errorf("%w: it has %d bytes", errNoLine, len(line))
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	if err := dec.Decode(&e); err != nil {
		return Entry{}, fmt.Errorf("%w: %v", errNoLine, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Entry{}, fmt.Errorf("%w: something follows the object", errNoLine)
	}
	if !isSeq(e.Seq) || !isHash(e.Prev) || e.Action == "" {
		return Entry{}, fmt.Errorf("%w: seq, prev or action is missing", errNoLine)
	}
	return e, nil
}

// isSeq tells a line's number: one that others than Go can read, too.
func isSeq(n uint64) bool { return n > 0 && n < 1<<53 }

// isHash tells a SHA-256 in hex.
func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32
}
