package control

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"time"

	"github.com/forkd/forkd/internal/leaf/shares"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Version of the protocol. Either side ends a connection with another one.
const Version = 1

// Limits of what one message may have.
const (
	MaxBatch  = 64       // VMs in one bind
	maxInline = 64 << 10 // bytes of a message; a longer body is in a memfd
	maxBody   = 16 << 20 // bytes of a body
	maxName   = 128      // bytes of a VM's, a sandbox's or a tag's name
)

// The requests.
const (
	opHello     = "hello"
	opBind      = "bind"
	opUpdate    = "update"
	opRelease   = "release"
	opList      = "list"
	opTraffic   = "traffic"
	opFlows     = "flows"
	opRefusals  = "refusals"
	opUntold    = "untold"
	opFacts     = "facts"
	opStats     = "stats"
	opSubscribe = "subscribe"
	opShutdown  = "shutdown"
)

// envelope is a message: a request has an op, an answer the id of its request.
type envelope struct {
	ID   uint64          `json:"id"`
	Op   string          `json:"op,omitempty"`
	Err  *wireError      `json:"error,omitempty"`
	Body json.RawMessage `json:"body,omitempty"`
	// Long is the length of a body that is in a memfd, the last descriptor.
	Long int64 `json:"long,omitempty"`
}

// Binding is a VM to be bound: its wire, whose it is, and what it may.
type Binding struct {
	VM      string `json:"vm"`
	Sandbox string `json:"sandbox"`
	// Tenant is the sandbox's owner, among whose sandboxes its tenant's part of what all VMs share is
	// divided; empty: the operator.
	Tenant string `json:"tenant,omitempty"`
	// Tag is the snapshot that the VM was forked from; empty for a parent that boots.
	Tag  string         `json:"tag,omitempty"`
	Spec netpolicy.Spec `json:"spec"`
	// Tree is the tree of forks that the VM is in, if that has a bandwidth limit.
	Tree Tree `json:"tree,omitzero"`
	// Handover says that the VMM's seccomp filter is confirmed to refuse connect
	// and its kind: TCP sockets may be handed over. Else all flows are relayed.
	Handover bool `json:"handover,omitempty"`
	// Facts are what Client.Facts gave for the VM that this one is a clone of:
	// names that its guest has resolved already.
	Facts json.RawMessage `json:"facts,omitempty"`
	// Wire is forkd-net's end, for Client.Bind, which leaves it open.
	Wire *os.File `json:"-"`
}

// Tree is what the VMs of a tree of forks have together.
type Tree struct {
	Name string `json:"name"`
	// BytesPerSecond is what may pass each way; 0 for no limit. VMs of one tree have the same.
	BytesPerSecond int64 `json:"bytes_per_second"`
}

// Bound is the result of binding or updating one VM.
type Bound struct {
	VM string `json:"vm"`
	// CA is the certificate, in PEM, that the guest has to trust: its policy
	// injects headers. Empty when it does not.
	CA  string     `json:"ca,omitempty"`
	Err *wireError `json:"error,omitempty"`
}

// Error is why this VM was not bound; nil when it was.
func (b Bound) Error() error {
	if b.Err == nil {
		return nil
	}
	return b.Err
}

// Listed is a VM that is bound.
type Listed struct {
	VM       string `json:"vm"`
	Sandbox  string `json:"sandbox"`
	Tag      string `json:"tag,omitempty"`
	Handover bool   `json:"handover,omitempty"`
	// Connected is false when its wire has ended: the VM needs a new one, or is gone.
	Connected bool           `json:"connected"`
	Flows     int            `json:"flows"`
	Spec      netpolicy.Spec `json:"spec"`
}

// Traffic is what a VM has had since it was bound.
type Traffic struct {
	VM  string `json:"vm"`
	In  int64  `json:"in"`  // bytes to the guest
	Out int64  `json:"out"` // bytes from the guest
	// Limit is bytes a second each way; 0 for none.
	Limit int64 `json:"limit,omitempty"`
}

// Flow is a live flow of a VM.
type Flow struct {
	ID         uint32         `json:"id"`
	Protocol   string         `json:"protocol"` // tcp, udp, echo
	Guest      netip.AddrPort `json:"guest"`
	Far        netip.AddrPort `json:"far"`
	Name       string         `json:"name,omitempty"`
	NameSource string         `json:"name_source,omitempty"` // dns, sni, host
	Rule       string         `json:"rule,omitempty"`
	Relayed    bool           `json:"relayed"`
	BytesIn    int64          `json:"bytes_in"`  // to the guest
	BytesOut   int64          `json:"bytes_out"` // from the guest
	Since      time.Time      `json:"since"`
}

// Line is a line of the audit: a flow that has ended, or refusals of one kind.
type Line struct {
	Time       time.Time      `json:"time"`
	VM         string         `json:"vm"`
	Sandbox    string         `json:"sandbox"`
	Protocol   string         `json:"protocol,omitempty"`
	Name       string         `json:"name,omitempty"`
	NameSource string         `json:"name_source,omitempty"`
	Far        netip.AddrPort `json:"far,omitzero"`
	Rule       string         `json:"rule,omitempty"`
	Verdict    string         `json:"verdict"` // allowed, denied, refused (by the network), limited, cut, broken
	Reason     string         `json:"reason,omitempty"`
	// Detail is more about the reason, for the operator: it may name the host's resolvers, proxy and
	// addresses. The audit's file and Untold have it; guests and subscribers do not.
	Detail string `json:"detail,omitempty"`
	// Count is of refusals that differ in their time alone; absent is one.
	Count    int     `json:"count,omitempty"`
	BytesIn  int64   `json:"bytes_in,omitempty"`
	BytesOut int64   `json:"bytes_out,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
	// Lost is how many lines before this one a subscriber was too slow for.
	Lost uint64 `json:"lost,omitempty"`
	// Owner is the tenant of the sandbox; empty: the operator.
	Owner string `json:"owner,omitempty"`
}

// Others is the name in a line that counts flows of a VM without a line of their own.
const Others = "others"

// Untold are refusals by policy, by limits and of broken wires, that nobody has asked for before.
type Untold struct {
	Lines []Line `json:"lines"`
	Lost  int    `json:"lost,omitempty"` // refusals that are in none of the lines
}

// Verdicts of a Line.
const (
	Allowed = "allowed" // and it has ended by itself
	Denied  = "denied"  // by policy
	Refused = "refused" // by the network or the far end
	Limited = "limited" // by a limit of the VM or of forkd-net
	Cut     = "cut"     // by a change of policy, or the VM was released
	Broken  = "broken"  // the VMM broke the protocol; its wire is ended
	// Suppressed counts lines that the file before did not take of a sandbox.
	Suppressed = "suppressed"
)

// Stats are counts since forkd-net started, but for VMs and Flows, which are now.
type Stats struct {
	VMs        int    `json:"vms"`
	Flows      int    `json:"flows"`
	Opened     uint64 `json:"opened"`
	Denied     uint64 `json:"denied"`
	Refused    uint64 `json:"refused"`
	Limited    uint64 `json:"limited"`
	Descriptor uint64 `json:"out_of_descriptors"`
	Cut        uint64 `json:"cut"`
	Broken     uint64 `json:"broken_wires"`
	AuditLost  uint64 `json:"audit_lost"`
}

type helloBody struct {
	Version int    `json:"version"`
	Program string `json:"program,omitempty"`
}

type bindBody struct {
	VMs []Binding `json:"vms"`
}

type boundBody struct {
	VMs []Bound `json:"vms"`
}

type updateBody struct {
	VM   string         `json:"vm"`
	Spec netpolicy.Spec `json:"spec"`
}

type vmBody struct {
	VM string `json:"vm"`
}

type listBody struct {
	VMs []Listed `json:"vms"`
}

type trafficBody struct {
	VMs []Traffic `json:"vms"`
}

type flowsBody struct {
	Flows []Flow `json:"flows"`
}

type linesBody struct {
	Lines []Line `json:"lines"`
}

// Errors that a caller may tell apart with errors.Is, on both sides.
var (
	ErrInvalid  = errors.New("invalid")
	ErrNotFound = errors.New("not bound")
	ErrExists   = errors.New("is bound already")
	ErrLimit    = errors.New("over a limit")
	ErrVersion  = errors.New("another version of the control protocol")
)

var codes = []struct {
	code string
	err  error
}{
	{"invalid", ErrInvalid}, {"not_found", ErrNotFound}, {"exists", ErrExists},
	{"limit", ErrLimit}, {"version", ErrVersion},
}

// wireError is an error as it goes over the socket.
type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *wireError) Error() string { return e.Message }

func (e *wireError) Is(target error) bool {
	for _, c := range codes {
		if c.err == target {
			return c.code == e.Code
		}
	}
	return false
}

// toWire makes an error fit for the socket; nil stays nil.
func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Code: "internal", Message: err.Error()}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			w.Code = c.code
			break
		}
	}
	return w
}

// Share is the key by which the VM gets its part of what all VMs share.
func (b Binding) Share() shares.Key {
	return shares.Key{Tenant: b.Tenant, Sandbox: cmp.Or(b.Sandbox, b.VM)}
}

// share has equal parts of two bindings in memory once: a fork's children differ in
// their names only.
func (b *Binding) share(with Binding) {
	if reflect.DeepEqual(b.Spec, with.Spec) {
		b.Spec = with.Spec
	}
	if bytes.Equal(b.Facts, with.Facts) {
		b.Facts = with.Facts
	}
	if b.Tag == with.Tag {
		b.Tag = with.Tag
	}
}

// Check refuses a binding that no server takes.
func (b Binding) check() error {
	for _, name := range []string{b.VM, b.Sandbox, b.Tenant, b.Tag, b.Tree.Name} {
		if len(name) > maxName {
			return fmt.Errorf("%w: name of %d bytes, want at most %d", ErrInvalid, len(name), maxName)
		}
	}
	if b.VM == "" {
		return fmt.Errorf("%w: a binding without a VM", ErrInvalid)
	}
	if t := b.Tree; t.BytesPerSecond < 0 || (t.BytesPerSecond > 0) != (t.Name != "") {
		return fmt.Errorf("%w: tree %q with %d bytes a second", ErrInvalid, t.Name, t.BytesPerSecond)
	}
	return nil
}
