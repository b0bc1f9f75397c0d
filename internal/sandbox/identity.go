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
	"github.com/forkd/forkd/internal/failpoint"
)

// entropyBytes is the fresh entropy each child gets; the kernel's pool holds 32.
const entropyBytes = 64

// persona is who a sandbox is to its guest. It stays the same for as long as
// the sandbox lives; entropy and clock are new with every identity.
type persona struct {
	ID        string            `json:"id"` // its hostname, too
	Index     int               `json:"index"`
	Parent    string            `json:"parent"` // tag of the snapshot that it was forked from
	MachineID string            `json:"machine_id"`
	Env       map[string]string `json:"env,omitempty"`
	// ForkToken is of the guest's call that it is a child of. Rolled back to that
	// very moment, it is that child again.
	ForkToken string `json:"fork_token,omitempty"`
}

// newPersona gives a child its name and a machine id.
func (e *Engine) newPersona(id string, index int, parent string, env map[string]string) (persona, error) {
	random, err := e.random(16)
	if err != nil {
		return persona{}, err
	}
	return persona{ID: id, Index: index, Parent: parent, MachineID: hex.EncodeToString(random), Env: env}, nil
}

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
	if b.m.agent != nil {
		b.m.agent.Close()
	}
	if !alive(b.m) || gone(b.err) && waitEnd(b.m, 50*time.Millisecond) {
		b.err = endError(b.m)
		f.e.logFailure(Info{ID: f.childID(b.index), SnapshotTag: f.req.Tag, CreatedAt: f.start}, endReason(b.m), b.m.dir)
	}
	b.err = fmt.Errorf("identity of child %d: %w", b.index, b.err)
	f.e.discard(b.m)
}

func (f *forking) settle(ctx context.Context, b *birth) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	id := f.childID(b.index)
	who, err := f.e.newPersona(id, b.index, f.req.Tag, f.req.Env)
	if err != nil {
		return err
	}
	who.ForkToken = f.req.kin.Token
	if err := f.introduce(ctx, b, who); err != nil {
		return err
	}
	failpoint.Here(failpoint.ForkConfirmed)
	now := f.e.cfg.Now()
	b.ready = now.Sub(f.start)
	b.info = Info{
		ID: id, SnapshotTag: f.req.Tag, SnapshotHash: f.src.hash(), Index: b.index, Status: StatusRunning, PID: b.m.proc.PID(), CreatedAt: now,
		Shape: b.m.shape, Hostname: id, Kin: f.req.kin, Resumed: b.resumed, Ready: b.ready,
	}
	err = f.e.admit(newBox(b.m.dir, who, b.info, b.m))
	b.trace.mark("journal")
	return err
}

// introduce tells a restored guest who it is, and waits until it has confirmed.
func (f *forking) introduce(ctx context.Context, b *birth, who persona) (err error) {
	b.m.agent = newAgent(b.m)
	b.trace.mark("turn")
	f.populate(ctx, b)
	b.trace.mark("populate")
	b.who = who
	b.answer, err = f.e.sendIdentity(ctx, b.m, who)
	b.trace.mark("identity")
	return err
}

// sendIdentity tries until the guest's time is over: just after a restore it
// may still be resetting its vsock transport and drop a connection.
func (e *Engine) sendIdentity(ctx context.Context, m *machine, who persona) (*agentv1.IdentityResponse, error) {
	limit := e.cfg.IdentityTimeout
	late := problem(ErrTimeout, "", "no answer to its identity within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		req, err := e.identity(who) // anew: entropy is never sent twice
		if err != nil {
			return nil, err
		}
		answer, err := m.agent.Identity(ctx, req)
		switch {
		case err == nil:
			e.cfg.Logger.Debug("identity confirmed", "sandbox", who.ID, "steps", stepTimes(answer))
			return answer, checkIdentity(answer)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case connect.CodeOf(err) == connect.CodeDeadlineExceeded: // the guest noticed first
			return nil, late
		case !dropped(err), !alive(m):
			return nil, err
		}
		sleep(ctx, wait)
	}
}

func (e *Engine) identity(who persona) (*agentv1.IdentityRequest, error) {
	entropy, err := e.random(entropyBytes)
	if err != nil {
		return nil, err
	}
	env := maps.Clone(who.Env)
	if env == nil {
		env = make(map[string]string, 3)
	}
	env["FORKD_INDEX"] = strconv.Itoa(who.Index)
	env["FORKD_PARENT"] = who.Parent
	env["FORKD_SANDBOX_ID"] = who.ID
	return &agentv1.IdentityRequest{
		SandboxId: who.ID, Index: uint32(who.Index), Parent: who.Parent, Hostname: who.ID,
		MachineId: who.MachineID, Entropy: entropy,
		WallUnixNs: time.Now().UnixNano(), // the guest's clock, not the engine's
		Env:        env,
		ForkToken:  who.ForkToken,
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

// dropped tells a connection that did not hold. The client calls one that was
// reset (ECONNRESET) canceled; that it was not by us, the caller has seen.
func dropped(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || code == connect.CodeCanceled
}
