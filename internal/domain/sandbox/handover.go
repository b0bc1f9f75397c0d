package sandbox

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Handover is a paused sandbox that one daemon can give to another.
type Handover struct {
	// ID is the sandbox, Owner its tenant; empty for the operator.
	ID, Owner string
	// PausedIn and PausedHash are the tag and content hash of the snapshot it is paused in, at the giver.
	PausedIn, PausedHash string
	// Record is its portable state, for the daemon that takes it.
	Record []byte
	// E2B has the facts of E2B's API about it. It may be empty.
	E2B []byte
}

// HandoverRequest asks for a paused sandbox. Without a claim it only describes the sandbox.
type HandoverRequest struct {
	// Owner, if not nil, is the tenant whose sandbox it has to be.
	Owner *string
	// Claim identifies the attempt of one daemon. The same claim may be repeated.
	Claim string
	// PausedIn and PausedHash have to be those of the description. They are unused without a claim.
	PausedIn, PausedHash string
	// To is the name of the claiming daemon's node; it may be empty.
	To string
}

// MaxHandover limits the bytes of a Handover's record.
const MaxHandover = 1 << 20

// Giver is another daemon that has a paused sandbox.
type Giver interface {
	// Name is the giver's address.
	Name() string
	// Describe returns the sandbox, without a change at the giver.
	Describe(ctx context.Context, id string) (Handover, error)
	// Snapshot reads a snapshot of the giver. The caller has not judged it.
	Snapshot(ctx context.Context, h Handover, receive func(io.Reader) error) error
	// Give makes the giver give the sandbox up. An error that is neither ErrConflict nor ErrNotFound leaves open
	// whether it has.
	Give(ctx context.Context, id string, req HandoverRequest) error
}

// TakeRequest asks for a sandbox of another daemon.
type TakeRequest struct {
	ID string
	// From has the sandbox. It is nil for a daemon that asks again for one whose giver has not answered.
	From Giver
	// Again returns the giver with this name. It may be nil.
	Again func(name string) (Giver, error)
	// Owner, if not nil, is the tenant whose sandbox it has to be.
	Owner *string
	// Admit is called with the guest's memory before the sandbox is taken. It may be nil.
	Admit func(memoryMiB int) error
	// Node is the name of this daemon's node; it may be empty.
	Node string
}

// Portable returns the part of a paused sandbox that another daemon can continue with, or an error that names the
// property that binds it to its daemon.
func Portable(i Info) (Info, error) {
	if i.Status != StatusPaused || i.InTransition() {
		return Info{}, Errorf(ErrConflict, "", "sandbox %s is %s: pause it first, then it can move to another daemon", i.ID,
			i.Status)
	}
	if why := bound(i); why != "" {
		return Info{}, Errorf(ErrUnsupported, ReasonSandboxBound, "sandbox %s cannot move to another daemon: %s", i.ID, why)
	}
	return Info{ID: i.ID, SnapshotTag: i.SnapshotTag, SnapshotHash: i.SnapshotHash, Index: i.Index, Fork: i.Fork,
		Owner: i.Owner, Status: StatusPaused,
		PausedIn: i.PausedIn, PausedHash: i.PausedHash, Life: i.Life, DiskBytes: i.DiskBytes,
		Network: Network{Asked: i.Network.Asked, Effective: i.Network.Effective},
		Limits:  i.Limits, CreatedAt: i.CreatedAt, Shape: i.Shape, Hostname: i.Hostname, HasServices: i.HasServices,
		AgentRenewed: i.AgentRenewed, PublicPorts: i.PublicPorts, Labels: i.Labels, TrafficToken: i.TrafficToken}, nil
}

// bound returns the first property that binds a sandbox to its daemon, or an empty string.
func bound(i Info) string {
	switch n := i.Network; {
	case i.Cold:
		return "it was paused without its memory"
	case len(i.Volumes) > 0:
		return "it has volumes"
	case len(i.Secrets) > 0:
		return "its memory or disk may contain values of secrets"
	case n.Member != nil:
		return "it is a member of private network " + n.Member.Network
	case n.Tap != "":
		return "it uses a tap of the host"
	case n.Asked.Bound()+n.Effective.Bound() != "":
		return "its network policy belongs to this daemon: " + cmp.Or(n.Asked.Bound(), n.Effective.Bound())
	case i.Kin.Identity:
		return "its guest gets identity tokens"
	case i.Kin != Kin{}:
		return "its guest may fork it, or was forked by a guest"
	case i.Promoting || i.PromotedFrom != "":
		return "it was promoted"
	}
	return ""
}

// CheckTaken returns an error if another daemon's word about a sandbox is not what a daemon would have recorded.
func CheckTaken(h Handover, i Info, who Identity, now time.Time) error {
	wrong := func(what string) error {
		return Errorf(ErrInvalid, "", "the peer's record of sandbox %s is not usable: %s", Clip(h.ID), what)
	}
	_, err := hex.DecodeString(who.MachineID)
	last := now.Add(MaxLife)
	switch {
	case i.ID != h.ID || who.ID != h.ID || i.Hostname != h.ID:
		return wrong("it is of another sandbox")
	case i.Owner != h.Owner || i.PausedIn != h.PausedIn || i.PausedHash != h.PausedHash:
		return wrong("it contradicts itself")
	case i.ID == "" || PausedIn(i.PausedIn) != i.ID:
		return wrong("its snapshot is not of a pause")
	case !printable(i.SnapshotHash) || i.SnapshotHash == "" || i.Index < 0 || i.Index > MaxFork || i.DiskBytes < 0 ||
		i.Fork != "" && !ValidID(i.Fork):
		return wrong("its origin is invalid")
	case err != nil || len(who.MachineID) != 32 || who.ForkToken != "":
		return wrong("its identity is invalid")
	case i.Life.Deadline.After(last) || i.Life.TTL < 0 || i.Life.TTL > MaxLife || i.CreatedAt.After(last):
		return wrong("its lifetime is invalid")
	case !printable(i.TrafficToken):
		return wrong("its token is invalid")
	}
	life := i.Life
	life.Deadline = time.Time{}
	if _, err := life.Set(now); err != nil {
		return err
	}
	if err := i.Limits.Check(false); err != nil {
		return err
	}
	if err := CheckLabels(i.Labels); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(who.Env)) {
		if err := CheckEnv(map[string]string{name: who.Env[name]}); err != nil {
			return err
		}
	}
	return CheckEnv(who.Env)
}

// printable reports whether a short text has only ASCII characters without spaces.
func printable(s string) bool {
	return len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// nodeNames matches names of nodes, which are those of Kubernetes.
var nodeNames = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// MovedTo returns the name of the node that has taken the sandbox of an error by MovedAway, or an empty string.
func MovedTo(err error) string {
	var e *Error
	if !errors.As(err, &e) || e.Reason() != ReasonSandboxMoved || !nodeNames.MatchString(e.Details()["node"]) {
		return ""
	}
	return e.Details()["node"]
}

// BeingTaken returns the error for a sandbox whose giver has not answered.
func BeingTaken(id, owner string) error {
	err := Detailed(Errorf(ErrNoResources, ReasonSandboxUnsettled,
		"sandbox %s is being taken from another daemon: repeat the request, or resume it to end the attempt", Clip(id)),
		"sandbox", id)
	if owner != "" {
		err = Detailed(err, "tenant", owner)
	}
	return err
}

// IsBeingTaken reports whether an error says that the giver of a sandbox has not answered.
func IsBeingTaken(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason() == ReasonSandboxUnsettled
}

// MovedAway returns the error for a sandbox that another daemon has taken.
func MovedAway(id, owner, to string) error {
	where := "another daemon"
	if to != "" {
		where = "node " + Clip(to)
	}
	err := Errorf(ErrNotFound, ReasonSandboxMoved, "sandbox %s was moved to %s", Clip(id), where)
	err = Detailed(err, "sandbox", id)
	if owner != "" {
		err = Detailed(err, "tenant", owner)
	}
	if to != "" {
		err = Detailed(err, "node", to)
	}
	return err
}
