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

// Result is the outcome of an action.
type Result string

// Values of Result.
const (
	OK      Result = "ok"
	Refused Result = "refused" // not attempted: the request was invalid or the caller not allowed
	Failed  Result = "failed"
)

// Actions of the log itself. The actions of requests are in a table in internal/api/auditing.
const (
	ActionOpened  = "audit.opened"  // a daemon begins to write
	ActionClosed  = "audit.closed"  // a daemon stopped cleanly
	ActionRolled  = "audit.rolled"  // first line of a file that continues another
	ActionTorn    = "audit.torn"    // the text before is the beginning of an incomplete line
	ActionCut     = "audit.cut"     // lines known to the head are missing
	ActionMissing = "audit.missing" // lines could not be written
	ActionChain   = "audit.chain"   // another chain begins; Note holds its name
	ActionSealed  = "audit.sealed"  // Seal seals lines of other chains
	ActionOthers  = "others"        // anonymous requests of too many kinds to list
)

// Entry is a line of the log. The log sets Seq, Prev and its own fields below.
type Entry struct {
	Seq  uint64 `json:"seq"`  // 1 for the first line of the chain, plus one for each
	Prev string `json:"prev"` // SHA-256 of the line before, without its newline, in hex
	// Time is when the action ended, in UTC.
	Time   time.Time `json:"time"`
	Action string    `json:"action"`
	Result Result    `json:"result"`
	// Request is the request's ID, as in the header Forkd-Request-Id.
	Request string `json:"request_id,omitempty"`
	Key     string `json:"key,omitempty"`      // ID of the request's API key
	KeyName string `json:"key_name,omitempty"` // its name
	Tenant  string `json:"tenant,omitempty"`   // the key's tenant; absent for the operator
	// Principal is how the client authenticated.
	Principal string `json:"principal,omitempty"`
	// Anonymous is true if the client did not authenticate. Tenant and Key are empty then.
	Anonymous bool   `json:"anonymous,omitempty"`
	Claim     string `json:"claim,omitempty"`  // kind of credential shown by an anonymous client
	Source    string `json:"source,omitempty"` // address of an anonymous client, or "uid N" over a Unix socket
	Sandbox   string `json:"sandbox,omitempty"`
	Snapshot  string `json:"snapshot,omitempty"`
	Image     string `json:"image,omitempty"`
	Object    string `json:"object,omitempty"` // any other object, such as a file's path
	Count     int    `json:"count,omitempty"`  // children requested; requests or flows counted by this line
	Read      bool   `json:"read,omitempty"`   // it changes no state
	Method    string `json:"method,omitempty"`
	Path      string `json:"path,omitempty"`
	Status    int    `json:"status,omitempty"`
	LatencyUS int64  `json:"latency_us"`
	UserAgent string `json:"user_agent,omitempty"`
	Error     string `json:"error,omitempty"`

	// Fields set by the log.
	Chain string `json:"chain,omitempty"` // chain of Seq and Prev; empty for the first one
	Lost  uint64 `json:"lost,omitempty"`  // entries lost since the last line with this field
	Torn  string `json:"torn,omitempty"`  // ActionTorn: SHA-256 of the incomplete line before this one
	File  string `json:"file,omitempty"`  // ActionRolled: name of the previous file
	// Dropped is set by ActionRolled: the oldest lines, up to this one, were removed.
	Dropped uint64 `json:"dropped,omitempty"`
	Head    uint64 `json:"head,omitempty"` // ActionCut: the last line known to the head
	Seal    *Seal  `json:"seal,omitempty"` // ActionSealed
	Note    string `json:"note,omitempty"`
}

// MaxLine limits a line in bytes, including its newline.
const MaxLine = 64 << 10

// maxName and the others limit the text that an entry copies from a request, in bytes.
const (
	maxName  = 128
	maxPath  = 1000
	maxText  = 500
	maxAgent = 300
)

// clipped returns the entry with text from outside cut to its limits.
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

// errNoLine is returned for text that is not a line of the log.
var errNoLine = errors.New("it is not a line of an audit log")

// Decode decodes a line without its newline. It ignores unknown fields.
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

// isSeq reports whether n is a valid line number. It must be exact in languages with double-precision numbers
// only.
func isSeq(n uint64) bool { return n > 0 && n < 1<<53 }

// isHash reports whether s is a SHA-256 in hex.
func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32
}
