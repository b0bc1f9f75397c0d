package sandbox

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

	"github.com/forkd/forkd/internal/agentproto/agentv1"
)

// entropyBytes is the fresh entropy each child gets; the kernel's pool holds 32.
const entropyBytes = 64

// identify makes a restored child a guest of its own and then lists it. A child
// that cannot be made unique does not live.
func (f *forking) identify(ctx context.Context, b *birth) {
	if b.err != nil {
		return
	}
	defer b.release()
	begin := f.e.cfg.Now()
	b.err = f.settle(ctx, b)
	now := f.e.cfg.Now()
	f.e.cfg.Observer.Observe(OpIdentity, now.Sub(begin), b.err)
	if b.err == nil {
		return
	}
	if b.agent != nil {
		b.agent.Close()
	}
	if !alive(b.m) || gone(b.err) && waitEnd(b.m, 50*time.Millisecond) {
		b.err = endError(b.m)
	}
	b.err = fmt.Errorf("identity of child %d: %w", b.index, b.err)
	f.e.discard(b.m)
}

func (f *forking) settle(ctx context.Context, b *birth) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	id := fmt.Sprintf("sb-%s-%04d", f.idPrefix, b.index)
	b.agent = newAgent(b.m)
	f.populate(ctx, b)
	if err := f.sendIdentity(ctx, b, id); err != nil {
		return err
	}
	now := f.e.cfg.Now()
	b.ready = now.Sub(f.start)
	b.info = Info{
		ID: id, SnapshotTag: f.req.Tag, SnapshotHash: f.src.hash(), Index: b.index, Status: StatusRunning, PID: b.m.proc.PID(), CreatedAt: now,
		Shape: b.m.shape, Hostname: id, Resumed: b.resumed, Ready: b.ready,
	}
	return f.e.admit(&box{dir: b.m.dir, agent: b.agent, branching: make(chan struct{}, 1), gone: make(chan struct{}), info: b.info, m: b.m, disks: b.m.disks})
}

// sendIdentity tries until the child's time is over: just after a restore the
// guest may still be resetting its vsock transport and drop a connection.
func (f *forking) sendIdentity(ctx context.Context, b *birth, id string) error {
	limit := f.e.cfg.IdentityTimeout
	late := problem(ErrTimeout, "", "no answer to its identity within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		req, err := f.identity(b, id) // anew: entropy is never sent twice
		if err != nil {
			return err
		}
		answer, err := b.agent.Identity(ctx, req)
		switch {
		case err == nil:
			f.e.cfg.Logger.Debug("identity confirmed", "sandbox", id, "steps", stepTimes(answer))
			return checkIdentity(answer)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case connect.CodeOf(err) == connect.CodeDeadlineExceeded: // the guest noticed first
			return late
		case connect.CodeOf(err) != connect.CodeUnavailable, !alive(b.m):
			return err
		}
		sleep(ctx, wait)
	}
}

func (f *forking) identity(b *birth, id string) (*agentv1.IdentityRequest, error) {
	random, err := f.e.random(entropyBytes + 16)
	if err != nil {
		return nil, err
	}
	env := maps.Clone(f.req.Env)
	if env == nil {
		env = make(map[string]string, 3)
	}
	env["FORKD_INDEX"] = strconv.Itoa(b.index)
	env["FORKD_PARENT"] = f.req.Tag
	env["FORKD_SANDBOX_ID"] = id
	return &agentv1.IdentityRequest{
		SandboxId: id, Index: uint32(b.index), Parent: f.req.Tag, Hostname: id,
		MachineId:  hex.EncodeToString(random[entropyBytes:]),
		Entropy:    random[:entropyBytes],
		WallUnixNs: time.Now().UnixNano(), // the guest's clock, not the engine's
		Env:        env,
	}, nil
}

// stepTimes says where the guest's time went, for the log.
func stepTimes(a *agentv1.IdentityResponse) string {
	var b strings.Builder
	for _, s := range a.GetSteps() {
		fmt.Fprintf(&b, "%s=%v ", s.GetName(), time.Duration(s.GetTookNs()))
	}
	return b.String()
}

// checkIdentity refuses a child that still shares anything with its siblings.
func checkIdentity(a *agentv1.IdentityResponse) error {
	var errs []error
	if !a.GetKernelReseeded() {
		errs = append(errs, errors.New("the kernel's random state was not reseeded"))
	}
	for _, s := range a.GetSteps() {
		if s.GetError() != "" && !(s.GetName() == hooksStep && len(a.GetHooks()) > 0) { // the hooks below say more
			errs = append(errs, fmt.Errorf("%s: %s", s.GetName(), s.GetError()))
		}
	}
	for _, i := range a.GetInterpreters() {
		if i.GetError() != "" {
			errs = append(errs, fmt.Errorf("reseed %s: %s", i.GetLanguage(), i.GetError()))
		}
	}
	for _, h := range a.GetHooks() {
		if h.GetError() != "" || h.GetExitCode() != 0 {
			errs = append(errs, hookError(h))
		}
	}
	return errors.Join(errs...)
}

// hooksStep is the agent's name of the step that runs the hooks.
const hooksStep = "hooks"

func hookError(h *agentv1.HookResult) error {
	text := fmt.Sprintf("hook %s: exit code %d", h.GetName(), h.GetExitCode())
	if h.GetExitCode() == 0 || h.GetExitCode() == -1 { // not what ended it
		text = fmt.Sprintf("hook %s: %s", h.GetName(), h.GetError())
	}
	if said := clip(strings.TrimSpace(printable([]byte(h.GetOutput())))); said != "" {
		text += "; it said: " + said
	}
	return errors.New(text)
}
