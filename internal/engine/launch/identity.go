package launch

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/trust"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// EntropyBytes is the amount of fresh entropy for each child; the kernel's pool holds 32 bytes.
const EntropyBytes = 64

// NewIdentity returns an identity for a child with its id and a new machine id.
func (l *Launcher) NewIdentity(id string, index int, parent string, env map[string]string) (sandbox.Identity, error) {
	random, err := l.cfg.Random(16)
	if err != nil {
		return sandbox.Identity{}, err
	}
	return sandbox.Identity{ID: id, Index: index, Parent: parent, MachineID: hex.EncodeToString(random), Env: env}, nil
}

// Way is the channel on which a guest gets its identity.
type Way string

const (
	ByPort Way = "port" // a dedicated port, one message each way
	ByHTTP Way = "http" // HTTP, like all other requests to an agent
)

// way returns the channel for a snapshot's guests. The snapshot records the capabilities of their
// agent, so there is no fallback: a child that does not answer on its port is broken, not older.
func (s *Source) way() Way {
	if s.Agent.Can(agentproto.CanIdentityPort) {
		return ByPort
	}
	return ByHTTP
}

// DialIdentity begins to open the connection for the guest's identity before the guest starts. The
// VMM holds the connection until the guest has dropped its parent's connections, so the host need
// not check for that.
func (l *Launcher) DialIdentity(ctx context.Context, src *Source, m *VM) {
	m.Agent = m.NewAgent()
	if src.way() == ByPort {
		m.Agent.DialIdentity(ctx)
	}
}

// Identify gives a restored guest its identity, and returns the guest's answer. It retries until
// the time limit: just after a restore the guest may still be resetting its vsock transport and
// drop a connection. Then it waits for forkd-net and opens the guest's network.
func (l *Launcher) Identify(ctx context.Context, src *Source, m *VM,
	who sandbox.Identity) (*agentv1.IdentityResponse, error) {
	answer, err := l.introduce(ctx, src, m, who)
	if err == nil {
		err = m.Settle()
	}
	if err != nil || m.Silent {
		return answer, err
	}
	if err := m.wire.Await(ctx); err != nil { // not limited by the guest's time, which is over
		return answer, err
	}
	return answer, l.openNet(ctx, m)
}

// introduce sends a guest its identity, and waits until it has confirmed.
func (l *Launcher) introduce(ctx context.Context, src *Source, m *VM,
	who sandbox.Identity) (*agentv1.IdentityResponse, error) {
	m.Lent.CA = l.cfg.Wires.CA(m.wire)
	m.IdentityBy = src.way()
	ask := m.Agent.Identity
	if m.IdentityBy == ByPort {
		ask = m.Agent.IdentityByPort
	}
	limit := src.extend(l.cfg.IdentityTimeout)
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "guest did not confirm its identity after %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	ctx, calm := m.WhileRoom(ctx, "sandbox "+who.ID)
	defer calm()
	var last error // of the previous try
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		req, err := l.identity(m, who) // for each try: entropy is never sent twice
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
		ctxsleep.For(ctx, wait)
	}
}

// openNet lets the guest send packets, as it is unique now. Before that, a sibling could have sent
// the same bytes, such as the start of an encrypted connection. If the VM has no end of its wire
// yet, it gets the end with the same message. A pooled shell has no end before: its sandbox and
// policy are known only at the fork, and a fork binds all its children with one request.
func (l *Launcher) openNet(ctx context.Context, m *VM) error {
	lent, err := l.cfg.Wires.Lend(ctx, m.wire, m.Lent)
	if err != nil {
		return err
	}
	defer lent.Close()
	limit := l.cfg.IdentityTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "opening its network timed out after %s", limit))
	defer cancel()
	if err := m.Proc.OpenNet(ctx, lent.File); err != nil {
		return fmt.Errorf("open its network: %w", err)
	}
	lent.CA, m.Lent = m.Lent.CA, lent // the certificate its guest got, even if forkd-net has a newer one
	return nil
}

// trust gives a guest the certificate it must trust before it can connect anywhere. If that fails,
// the guest still becomes a sandbox, but its connections to hosts with added headers fail.
func (l *Launcher) trust(ctx context.Context, m *VM, who sandbox.Identity) {
	if m.Lent.CA == "" {
		return
	}
	if err := trust.Install(ctx, m.Agent, m.Lent.CA); err != nil {
		l.cfg.Log.Warn("a guest does not trust forkd-net: hosts with header rules fail in it",
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
	maps.Copy(env, who.Secrets)
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
	var services []byte
	if len(who.Services) > 0 {
		if services, err = json.Marshal(who.Services); err != nil {
			return nil, fmt.Errorf("encode services: %w", err)
		}
	}
	return &agentv1.IdentityRequest{
		Services:  services,
		SandboxId: who.ID, Index: uint32(who.Index), Parent: who.Parent, Hostname: who.ID,
		MachineId: who.MachineID, Entropy: entropy,
		WallUnixNs: time.Now().UnixNano(), // the guest's clock, not the engine's
		Env:        env,
		ForkToken:  who.ForkToken, SameMachine: who.SameMachine,
		Volumes: m.Mounts,
		// A guest without a device, as in old snapshots, ignores it.
		Network: &agentv1.NetworkIdentity{HardwareAddress: MAC(who.ID)},
	}, nil
}

// stepTimes formats the duration of the guest's steps, for the log.
func stepTimes(a *agentv1.IdentityResponse) string {
	var b strings.Builder
	for _, s := range a.GetSteps() {
		fmt.Fprintf(&b, "%s=%v ", guesttext.Of(s.GetName()), time.Duration(s.GetTookNs()))
	}
	return guesttext.Of(b.String()).String()
}

// checkIdentity returns an error if a child still shares state with its siblings.
func checkIdentity(a *agentv1.IdentityResponse) error {
	var errs []error
	if !a.GetKernelReseeded() {
		errs = append(errs, errors.New("the kernel's random state was not reseeded"))
	}
	for _, s := range a.GetSteps() {
		if s.GetError() != "" && !(s.GetName() == hooksStep && len(a.GetHooks()) > 0) { // the hooks below have more detail
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
	if h.GetExitCode() == 0 || h.GetExitCode() == -1 { // the exit code did not end it
		text = fmt.Sprintf("hook %s: %s", name, guesttext.Of(h.GetError()))
	}
	if said := sandbox.Clip(strings.TrimSpace(vmproc.Printable([]byte(h.GetOutput())))); said != "" {
		text += "; it said: " + said
	}
	return errors.New(text)
}

// dropped reports whether a connection broke. The client reports a reset connection (ECONNRESET) as
// canceled; the caller has checked that we did not cancel it.
func dropped(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || code == connect.CodeCanceled
}
