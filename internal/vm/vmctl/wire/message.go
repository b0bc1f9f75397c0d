package wire

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// MaxMessage limits the bytes of a control message, MaxFiles its descriptors.
const (
	MaxMessage = 64 << 10
	MaxFiles   = 160 // SCM_MAX_FD is 253
)

// MaxAnswer limits messages from a VMM: the daemon keeps a buffer of this size for each of a
// thousand VMs.
const MaxAnswer = 4 << 10

// MaxDials is the maximum number of a guest's unanswered dials.
const MaxDials = 128

// Version is the version of the protocol, and Oldest the lowest version that a daemon understands. A
// daemon adopts VMMs from Oldest to Version, and ends others. A change that an older daemon cannot follow
// raises Version, and with it dataformat.Number, so that the older daemon refuses before it meets such a
// VMM. Oldest rises only when its releases are no longer supported.
const (
	Version = 5
	Oldest  = 5 // 0.1.0
)

// Operations requested by the daemon.
const (
	OpBoot            = "boot"
	OpRestore         = "restore"
	OpPause           = "pause"
	OpResume          = "resume"
	OpSave            = "save"
	OpCapture         = "capture"
	OpCaptured        = "captured" // wait until a capture is written
	OpRebase          = "rebase"
	OpStatus          = "status"
	OpWriteWorkingSet = "write-working-set"
	OpPopulate        = "populate"
	OpPopulateShell   = "populate-shell"
	OpNet             = "net"      // set the wire
	OpNetOpen         = "net-open" // open the network; set the wire first, if one is attached
	OpPlug            = "plug"     // add volumes
	OpDialed          = "dialed"   // answer to EventDial
)

// Unrequested events from the VMM.
const (
	EventReady = "ready" // the VM exists and can take boot or restore
	EventExit  = "exit"  // the VM has ended; the process follows
	EventDial  = "dial"  // the guest connects to a host port
	// EventHealth reports a change of vmm.Health: a disk runs out of room, finds room again or has
	// lost a write, or the guest's kernel hangs or continues.
	EventHealth = "health"
)

// Message is a message in either direction.
type Message struct {
	ID    uint64          `json:"id,omitempty"`    // of the request, repeated in its answer
	Op    string          `json:"op,omitempty"`    // of a request; one of the Op constants
	Event string          `json:"event,omitempty"` // of an event; one of the Event constants
	Error *Error          `json:"error,omitempty"` // of an answer to a failed request
	Body  json.RawMessage `json:"body,omitempty"`  // JSON of a request, an answer or an event
	// Table has the request's extents, unless they are in a sealed file: the last descriptor.
	Table     []byte `json:"table,omitempty"`
	TableFile bool   `json:"table_file,omitempty"` // the extents are in a sealed file
}

// Ready is the body of EventReady. It is sent before there is a guest, so it is trustworthy.
type Ready struct {
	seccomp.Confinement
}

// maxWhy limits a VMM's text about its confinement.
const maxWhy = 500

// ClipReady shortens a Ready to fit into MaxAnswer.
func ClipReady(r Ready) Ready {
	r.Why = ellipsis.Clip(r.Why, maxWhy)
	return r
}

// Dial is the body of EventDial.
type Dial struct {
	Port uint32 `json:"port"` // vsock port of the host
}

// Status is the answer to OpStatus.
type Status struct {
	Version int `json:"version"` // version of the protocol
	vmm.Status
}

// maxHealthText limits each text of a vmm.Health: all must fit into an answer in any JSON encoding.
const maxHealthText = 250

// maxHangText limits the location of a hang: a vCPU and an address.
const maxHangText = 60

// ClipHealth shortens a health report to fit into MaxAnswer.
func ClipHealth(h vmm.Health) vmm.Health {
	h.Full, h.Lost = ellipsis.Clip(h.Full, maxHealthText), ellipsis.Clip(h.Lost, maxHealthText)
	h.Hang = ellipsis.Clip(h.Hang, maxHangText)
	return h
}

// Printable removes characters with which a VMM's text could control a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
