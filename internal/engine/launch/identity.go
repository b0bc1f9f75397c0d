package launch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/trust"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// EntropyBytes is the fresh entropy each child gets; the kernel's pool holds 32.
const EntropyBytes = 64

// NewIdentity gives a child its name and a machine id.
func (l *Launcher) NewIdentity(id string, index int, parent string, env map[string]string) (sandbox.Identity, error) {
	random, err := l.cfg.Random(16)
	if err != nil {
		return sandbox.Identity{}, err
	}
	return sandbox.Identity{ID: id, Index: index, Parent: parent, MachineID: hex.EncodeToString(random), Env: env}, nil
}

// Way is how a guest is told who it is.
type Way string

const (
	ByPort Way = "port" // the identity's own, one message each way
	ByHTTP Way = "http" // as everything else is asked of an agent
)

// way is that of a snapshot's guests. What their agent can is known from the snapshot, so
// nothing is tried: a child whose port does not answer is broken, and not an older one.
func (s *Source) way() Way {
	if s.Agent.Can(agentproto.CanIdentityPort) {
		return ByPort
	}
	return ByHTTP
}

// DialIdentity begins to open the connection on which a guest learns who it is, before it begins. The VMM keeps that
// until the guest has dropped the connections of its parent, so nobody has to be asked when it has.
func (l *Launcher) DialIdentity(ctx context.Context, src *Source, m *VM) {
	m.Agent = m.NewAgent()
	if src.way() == ByPort {
		m.Agent.DialIdentity(ctx)
	}
}

// Identify gives a restored guest its identity, and returns what it says it did. It tries
// until the guest's time is over: just after a restore it may still be resetting its vsock
// transport and drop a connection. Then it opens its network, for which it waits for forkd-net.
func (l *Launcher) Identify(ctx context.Context, src *Source, m *VM,
	who sandbox.Identity) (*agentv1.IdentityResponse, error) {
	answer, err := l.introduce(ctx, src, m, who)
	if err == nil {
		err = m.Settle()
	}
	if err != nil || m.Silent {
		return answer, err
	}
	if err := m.wire.Await(ctx); err != nil { // the guest's time is over, and was not for this
		return answer, err
	}
	return answer, l.openNet(ctx, m)
}

// introduce tells a guest who it is, and waits until it has confirmed.
func (l *Launcher) introduce(ctx context.Context, src *Source, m *VM,
	who sandbox.Identity) (*agentv1.IdentityResponse, error) {
	m.Lent.CA = l.cfg.Wires.CA(m.wire)
	m.IdentityBy = src.way()
	ask := m.Agent.Identity
	if m.IdentityBy == ByPort {
		ask = m.Agent.IdentityByPort
	}
	limit := l.cfg.IdentityTimeout
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "no answer to its identity within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	ctx, calm := m.WhileRoom(ctx, "sandbox "+who.ID)
	defer calm()
	var last error // of a try before
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		req, err := l.identity(m, who) // anew: entropy is never sent twice
		if err != nil {
			return nil, err
		}
		answer, err := ask(ctx, req)
		switch {
		case err == nil:
			l.cfg.Log.Debug("identity confirmed", "sandbox", who.ID, "steps", stepTimes(answer))
			if err := checkIdentity(answer); err != nil {
				return answer, err
			}
			l.trust(ctx, m, who)
			return answer, nil
		case ctx.Err() != nil && last != nil && errors.Is(context.Cause(ctx), late):
			return nil, fmt.Errorf("%w; tried again and again: %v", late, last)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case connect.CodeOf(err) == connect.CodeDeadlineExceeded: // the guest noticed first
			return nil, late
		case !dropped(err), !m.Alive():
			return nil, err
		}
		last = err
		sched.Sleep(ctx, wait)
	}
}

// openNet lets out what the guest sends: it is one of a kind now. Before that a sibling could
// have sent the same bytes, such as the begin of an encrypted connection. A VM that has no end of
// its wire yet gets it with the same message. A pool's shells have none before: whose they will be,
// and what that one may reach, is known at the fork only, and forks bind all their children with one
// request.
func (l *Launcher) openNet(ctx context.Context, m *VM) error {
	lent, err := l.cfg.Wires.Lend(ctx, m.wire, m.Lent)
	if err != nil {
		return err
	}
	defer lent.Close()
	limit := l.cfg.IdentityTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "its network was not open within %s", limit))
	defer cancel()
	if err := m.Proc.OpenNet(ctx, lent.File); err != nil {
		return fmt.Errorf("open its network: %w", err)
	}
	lent.CA, m.Lent = m.Lent.CA, lent // what its guest was told, whatever forkd-net has now
	return nil
}

// trust gives a guest the certificate that it has to trust before it can speak to anybody. One
// that cannot take it is a sandbox all the same: its connections to those hosts fail.
func (l *Launcher) trust(ctx context.Context, m *VM, who sandbox.Identity) {
	if m.Lent.CA == "" {
		return
	}
	if err := trust.Install(ctx, m.Agent, m.Lent.CA); err != nil {
		l.cfg.Log.Warn("a guest does not trust forkd-net: hosts that headers are set on fail in it",
			"sandbox", who.ID, "err", err)
	}
}

func (l *Launcher) identity(m *VM, who sandbox.Identity) (*agentv1.IdentityRequest, error) {
	entropy, err := l.cfg.Random(EntropyBytes)
	if err != nil {
		return nil, err
	}
	env := maps.Clone(who.Env)
	if env == nil {
		env = make(map[string]string, 3)
	}
	if m.Lent.CA != "" {
		for name, path := range trust.Env() {
			if _, own := env[name]; !own {
				env[name] = path
			}
		}
	}
	env["FORKD_INDEX"] = strconv.Itoa(who.Index)
	env["FORKD_PARENT"] = who.Parent
	env["FORKD_SANDBOX_ID"] = who.ID
	return &agentv1.IdentityRequest{
		SandboxId: who.ID, Index: uint32(who.Index), Parent: who.Parent, Hostname: who.ID,
		MachineId: who.MachineID, Entropy: entropy,
		WallUnixNs: time.Now().UnixNano(), // the guest's clock, not the engine's
		Env:        env,
		ForkToken:  who.ForkToken, SameMachine: who.SameMachine,
		// A guest without a device, as in snapshots of earlier days, passes it over.
		Network: &agentv1.NetworkIdentity{HardwareAddress: MAC(who.ID)},
	}, nil
}

// stepTimes says where the guest's time went, for the log.
func stepTimes(a *agentv1.IdentityResponse) string {
	var b strings.Builder
	for _, s := range a.GetSteps() {
		fmt.Fprintf(&b, "%s=%v ", guesttext.Of(s.GetName()), time.Duration(s.GetTookNs()))
	}
	return guesttext.Of(b.String()).String()
}

// checkIdentity refuses a child that still shares anything with its siblings.
func checkIdentity(a *agentv1.IdentityResponse) error {
	var errs []error
	if !a.GetKernelReseeded() {
		errs = append(errs, errors.New("the kernel's random state was not reseeded"))
	}
	for _, s := range a.GetSteps() {
		if s.GetError() != "" && !(s.GetName() == hooksStep && len(a.GetHooks()) > 0) { // the hooks below say more
			errs = append(errs, fmt.Errorf("%s: %s", guesttext.Of(s.GetName()), guesttext.Of(s.GetError())))
		}
	}
	for _, i := range a.GetInterpreters() {
		if i.GetError() != "" {
			errs = append(errs, fmt.Errorf("reseed %s: %s", guesttext.Of(i.GetLanguage()), guesttext.Of(i.GetError())))
		}
	}
	for _, h := range a.GetHooks() {
		if h.GetError() != "" || h.GetExitCode() != 0 {
			errs = append(errs, hookError(h))
		}
	}
	return guesttext.Error(errors.Join(errs...))
}

// hooksStep is the agent's name of the step that runs the hooks.
const hooksStep = "hooks"

func hookError(h *agentv1.HookResult) error {
	name := guesttext.Of(h.GetName())
	text := fmt.Sprintf("hook %s: exit code %d", name, h.GetExitCode())
	if h.GetExitCode() == 0 || h.GetExitCode() == -1 { // not what ended it
		text = fmt.Sprintf("hook %s: %s", name, guesttext.Of(h.GetError()))
	}
	if said := sandbox.Clip(strings.TrimSpace(vmproc.Printable([]byte(h.GetOutput())))); said != "" {
		text += "; it said: " + said
	}
	return errors.New(text)
}

// dropped tells a connection that did not hold. The client calls one that was
// reset (ECONNRESET) canceled; that it was not by us, the caller has seen.
func dropped(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || code == connect.CodeCanceled
}
