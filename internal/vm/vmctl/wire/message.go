package wire

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// MaxMessage bounds one control message in bytes, MaxFiles the descriptors in it.
const (
	MaxMessage = 64 << 10
	MaxFiles   = 160 // SCM_MAX_FD is 253
)

// MaxAnswer bounds what a VMM sends: the daemon keeps a buffer of that size for
// each of a thousand VMs.
const MaxAnswer = 4 << 10

// MaxDials is how many of a guest's dials wait for the daemon's answer.
const MaxDials = 128

// Version of the protocol. A daemon adopts only VMMs that speak its own version.
const Version = 5

// Operations that the daemon asks for.
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
	OpNet             = "net"      // another way to the network
	OpNetOpen         = "net-open" // let out what the guest sends; on another way to the network, if there is one with it
	OpDialed          = "dialed"   // answer to EventDial
)

// Events that the VMM sends by itself.
const (
	EventReady  = "ready"  // the VM exists and can take boot or restore
	EventExit   = "exit"   // the VM has ended; the process follows
	EventDial   = "dial"   // the guest connects to a host port
	EventHealth = "health" // a disk finds no room or some again, or has lost a write; the guest's kernel hangs or goes on
)

// Message is what travels, in both directions.
type Message struct {
	ID    uint64          `json:"id,omitempty"` // of the request, repeated in its answer
	Op    string          `json:"op,omitempty"`
	Event string          `json:"event,omitempty"`
	Error *Error          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
	// Table has the request's extents, unless they are in a sealed file: the last descriptor.
	Table     []byte `json:"table,omitempty"`
	TableFile bool   `json:"table_file,omitempty"`
}

// Ready is the body of EventReady. It comes before there is a guest, so it is to be believed.
type Ready struct {
	seccomp.Confinement
}

// maxWhy bounds what a VMM says of its confinement.
const maxWhy = 500

// ClipReady keeps the message within MaxAnswer.
func ClipReady(r Ready) Ready {
	r.Why = ellipsis.Clip(r.Why, maxWhy)
	return r
}

// Dial is the body of EventDial.
type Dial struct {
	Port uint32 `json:"port"`
}

// Status is the answer to OpStatus.
type Status struct {
	Version int `json:"version"` // of the protocol
	vmm.Status
}

// maxHealthText bounds each text of a vmm.Health, so that all fit into an answer whatever JSON makes of them.
const maxHealthText = 250

// maxHangText bounds the place of a hang: a vCPU and an address.
const maxHangText = 60

// ClipHealth keeps an account of a VM's health within MaxAnswer.
func ClipHealth(h vmm.Health) vmm.Health {
	h.Full, h.Lost = ellipsis.Clip(h.Full, maxHealthText), ellipsis.Clip(h.Lost, maxHealthText)
	h.Hang = ellipsis.Clip(h.Hang, maxHangText)
	return h
}

// Printable keeps what a VMM says from controlling a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
