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
	"strings"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/leaf/shares"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Version is the version of the protocol. Either side ends a connection with another version.
const Version = 1

// Limits of one message.
const (
	MaxBatch  = 64       // VMs in one bind
	maxInline = 64 << 10 // bytes of a message; a longer body is in a memfd
	maxBody   = 16 << 20 // bytes of a body
	maxName   = 128      // bytes of the name of a VM, sandbox or tag
)

// Requests.
const (
	opHello      = "hello"
	opBind       = "bind"
	opUpdate     = "update"
	opRelease    = "release"
	opList       = "list"
	opTraffic    = "traffic"
	opFlows      = "flows"
	opRefusals   = "refusals"
	opUnreported = "untold"
	opFacts      = "facts"
	opStats      = "stats"
	opSubscribe  = "subscribe"
	opShutdown   = "shutdown"
)

// envelope is a message. A request has an op, an answer has the id of its request.
type envelope struct {
	ID   uint64          `json:"id"`
	Op   string          `json:"op,omitempty"`
	Err  *wireError      `json:"error,omitempty"`
	Body json.RawMessage `json:"body,omitempty"`
	// Long is the length of a body in a memfd. The memfd is the last descriptor.
	Long int64 `json:"long,omitempty"`
}

// Binding is a VM to bind, with its wire, owner and policy.
type Binding struct {
	VM      string `json:"vm"`      // unique among VMs with a live wire; at most maxName bytes
	Sandbox string `json:"sandbox"` // at most maxName bytes
	// Tenant is the sandbox's owner, or empty for the operator. Each tenant has a share of the
	// resources of all VMs, divided among its sandboxes.
	Tenant string `json:"tenant,omitempty"`
	// Tag is the snapshot that the VM was forked from. Empty for a parent that boots. An older server chooses the
	// guest's certificate by it.
	Tag  string         `json:"tag,omitempty"`
	Spec netpolicy.Spec `json:"spec"` // the initial policy; Client.Update replaces it
	// Tree is the VM's tree of forks, if the tree has a bandwidth limit.
	Tree Tree `json:"tree,omitzero"`
	// Handover reports that the VMM's seccomp filter is confirmed to refuse connect and related
	// calls, so TCP sockets may be handed over. Otherwise all flows are relayed.
	Handover bool `json:"handover,omitempty"`
	// Facts is the result of Client.Facts for the source of this clone: names already resolved by
	// its guest.
	Facts json.RawMessage `json:"facts,omitempty"`
	// Member makes the VM a member of a private network. May be absent.
	Member *Member `json:"member,omitempty"`
	// Names returns the address of a member of the VM's private network. Server.Bind sets it. May be
	// nil.
	Names func(name string) (netip.Addr, bool) `json:"-"`
	// Wire is forkd-net's end, for Client.Bind. Bind leaves it open.
	Wire *os.File `json:"-"`
}

// Member is a VM's place in a private network of its tenant.
type Member struct {
	Network string `json:"network"` // id of the network; at most maxName bytes
	// Alias is its name there, a lowercase DNS label. Others find it as ALIAS.forkd.internal.
	Alias string     `json:"alias"`
	Addr  netip.Addr `json:"addr"` // in the eyes of the others, from guestnet.Members4
}

// Name returns the name by which other members find it.
func (m Member) Name() string { return m.Alias + "." + netpolicy.Zone }

func (m Member) check() error {
	switch name, err := netpolicy.CanonicalName(m.Name()); {
	case m.Network == "", len(m.Network) > maxName:
		return fmt.Errorf("%w: private network with a name of %d bytes", ErrInvalid, len(m.Network))
	case err != nil, name != m.Name(), strings.Contains(m.Alias, "."), name == netpolicy.HostName:
		return fmt.Errorf("%w: alias %q", ErrInvalid, m.Alias)
	case !guestnet.Members4.Contains(m.Addr):
		return fmt.Errorf("%w: member at %s, want an address in %s", ErrInvalid, m.Addr, guestnet.Members4)
	}
	return nil
}

// Tree is a tree of forks. Its VMs share a bandwidth limit.
type Tree struct {
	Name string `json:"name"` // with BytesPerSecond, the key of the shared limit
	// BytesPerSecond is the limit in each direction, or 0 for no limit. It is equal for all VMs of
	// a tree.
	BytesPerSecond int64 `json:"bytes_per_second"`
}

// Bound is the result of binding or updating one VM.
type Bound struct {
	VM string `json:"vm"` // of the binding or the update
	// CA is the certificate, in PEM, that the guest must trust because its policy injects headers.
	// Empty if it does not.
	CA  string     `json:"ca,omitempty"`
	Err *wireError `json:"error,omitempty"` // absent on success; see Error
}

// Error returns why this VM was not bound, or nil if it was.
func (b Bound) Error() error {
	if b.Err == nil {
		return nil
	}
	return b.Err
}

// Listed is a bound VM.
type Listed struct {
	VM       string `json:"vm"`                 // of the Binding
	Sandbox  string `json:"sandbox"`            // of the Binding
	Tag      string `json:"tag,omitempty"`      // of the Binding
	Handover bool   `json:"handover,omitempty"` // of the Binding
	// Connected is false if its wire has ended: the VM needs a new one, or is gone.
	Connected bool           `json:"connected"`
	Flows     int            `json:"flows"` // number of live and opening flows
	Spec      netpolicy.Spec `json:"spec"`  // the current policy: of the Binding or the last update
}

// Traffic counts a VM's traffic since it was bound.
type Traffic struct {
	VM  string `json:"vm"`  // of the Binding
	In  int64  `json:"in"`  // bytes to the guest
	Out int64  `json:"out"` // bytes from the guest
	// Limit is in bytes per second, in each direction. 0 means no limit.
	Limit int64 `json:"limit,omitempty"`
}

// Flow is a live flow of a VM.
type Flow struct {
	ID         uint32         `json:"id"`                    // of the VMM's Open message
	Protocol   string         `json:"protocol"`              // tcp, udp, echo
	Guest      netip.AddrPort `json:"guest"`                 // source address and port in the guest
	Far        netip.AddrPort `json:"far"`                   // the judged destination; until then, the requested one
	Name       string         `json:"name,omitempty"`        // the host name by which the flow was judged
	NameSource string         `json:"name_source,omitempty"` // dns, sni, host
	Rule       string         `json:"rule,omitempty"`        // the deciding rule, as its user wrote it
	Relayed    bool           `json:"relayed"`               // by forkd-net; otherwise the VMM has the socket
	BytesIn    int64          `json:"bytes_in"`              // to the guest
	BytesOut   int64          `json:"bytes_out"`             // from the guest
	Since      time.Time      `json:"since"`                 // time of the guest's request
}

// Line is a line of the audit: an ended flow, or refusals of one kind.
type Line struct {
	Time       time.Time      `json:"time"`                  // end of the flow or first refusal, by the host's clock
	VM         string         `json:"vm"`                    // of the Binding
	Sandbox    string         `json:"sandbox"`               // of the Binding
	Protocol   string         `json:"protocol,omitempty"`    // tcp, udp, echo; dns for a refused name
	Name       string         `json:"name,omitempty"`        // also a refused name or Others; up to 256 bytes
	NameSource string         `json:"name_source,omitempty"` // as in Flow
	Far        netip.AddrPort `json:"far,omitzero"`          // as in Flow; absent for names
	Rule       string         `json:"rule,omitempty"`        // as in Flow; up to 256 bytes
	Verdict    string         `json:"verdict"`               // one of the verdicts below
	Reason     string         `json:"reason,omitempty"`      // a sentence for people, up to 500 bytes
	// Detail adds to the reason, for the operator only: it may contain the host's resolvers, proxy
	// and addresses. It is in the audit's file and in Untold, but not in data for guests and
	// subscribers.
	Detail string `json:"detail,omitempty"`
	// Count is the number of refusals that differ only in their time. Absent means one.
	Count    int     `json:"count,omitempty"`
	BytesIn  int64   `json:"bytes_in,omitempty"`  // of the flow, to the guest
	BytesOut int64   `json:"bytes_out,omitempty"` // of the flow, from the guest
	Seconds  float64 `json:"seconds,omitempty"`   // duration of the flow
	// Lost is the number of lines lost before this one, because the subscriber was too slow.
	Lost uint64 `json:"lost,omitempty"`
	// Owner is the tenant of the sandbox, or empty for the operator.
	Owner string `json:"owner,omitempty"`
}

// Others is the name in a line that counts flows of a VM without separate lines.
const Others = "others"

// Untold contains refusals by policy and by limits, and broken wires, since the previous call.
type Untold struct {
	Lines []Line `json:"lines"`          // one per kind of refusal, with its Count
	Lost  int    `json:"lost,omitempty"` // refusals not in the lines
}

// Verdicts of a Line.
const (
	Allowed = "allowed" // ended normally
	Denied  = "denied"  // by policy
	Refused = "refused" // by the network or the far end
	Limited = "limited" // by a limit of the VM or of forkd-net
	Cut     = "cut"     // by a change of policy, or the VM was released
	Broken  = "broken"  // the VMM broke the protocol; its wire was ended
	// Suppressed counts a sandbox's lines that did not fit its share of the previous file.
	Suppressed = "suppressed"
)

// Stats counts events since forkd-net started. VMs and Flows are current values.
type Stats struct {
	VMs        int    `json:"vms"`                // bound now
	Flows      int    `json:"flows"`              // of all VMs, now
	Opened     uint64 `json:"opened"`             // flows that became live, even if cut immediately
	Denied     uint64 `json:"denied"`             // flows and names refused by policy
	Refused    uint64 `json:"refused"`            // flows refused by the network or the far end
	Limited    uint64 `json:"limited"`            // flows refused by a limit of the VM or of forkd-net
	Descriptor uint64 `json:"out_of_descriptors"` // flows that failed for lack of descriptors
	Cut        uint64 `json:"cut"`                // flows ended early, as by a change of policy
	Broken     uint64 `json:"broken_wires"`       // wires ended because the VMM broke the protocol
	AuditLost  uint64 `json:"audit_lost"`         // audit lines lost: full queue or failed write
}

type helloBody struct {
	Version int    `json:"version"`
	Program string `json:"program,omitempty"`
	// Features are parts of policies that forkd-net enforces beyond those of version 1 as first released. The daemon
	// sends it no policy with another part: an older forkd-net would ignore the part.
	Features []string `json:"features,omitempty"`
}

// Features: policies with a proxy, and private networks.
const (
	featureProxy  = "proxy"
	featureMember = "member"
)

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

// Errors for errors.Is, on both sides.
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

// wireError is an error in the form for the socket.
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

// toWire converts an error for the socket. It returns nil for nil.
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

// Share returns the key by which the VM gets its part of shared resources.
func (b Binding) Share() shares.Key {
	return shares.Key{Tenant: b.Tenant, Sandbox: cmp.Or(b.Sandbox, b.VM)}
}

// share makes b use equal parts of with, to save memory: a fork's children differ only in their
// names.
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

// check returns an error for a binding that servers refuse.
func (b Binding) check() error {
	for _, name := range []string{b.VM, b.Sandbox, b.Tenant, b.Tag, b.Tree.Name} {
		if len(name) > maxName {
			return fmt.Errorf("%w: name of %d bytes, want at most %d", ErrInvalid, len(name), maxName)
		}
	}
	if b.VM == "" {
		return fmt.Errorf("%w: a binding without a VM", ErrInvalid)
	}
	if b.Member != nil {
		if err := b.Member.check(); err != nil {
			return err
		}
	}
	if t := b.Tree; t.BytesPerSecond < 0 || (t.BytesPerSecond > 0) != (t.Name != "") {
		return fmt.Errorf("%w: tree %q with %d bytes a second", ErrInvalid, t.Name, t.BytesPerSecond)
	}
	return nil
}
