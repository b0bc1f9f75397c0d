package op

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// createOp is one running CreateSnapshot.
type createOp struct {
	e        *Ops
	req      sandbox.CreateRequest
	src      parentSource
	progress func(sandbox.Step)
	steps    []sandbox.Step
	told     []steps.Reported // the guest's own steps of the current step

	draft  *catalog.Draft
	memory snapshot.Chain
	upper  snapshot.Chain // writable disk, if the image has one
	opened []*store.Chain // chains of memory and upper
	m      *vmproc.VM
	wire   *network.Wire // of the parent; nil if it needs no network
	agent  *agentclient.Client
	saidOf snapshot.Agent // as the agent described itself
	digest *os.File       // digests of the whole snapshot; nil without an oracle
}

// CreateSnapshot boots an image, waits for its ready signal, warms it up, and saves it under a tag.
// A failed or cancelled call leaves no snapshot and no files. progress is called in order from one
// goroutine, and may be nil.
func (o *Ops) CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
	progress func(sandbox.Step)) (_ sandbox.SnapshotInfo, err error) {
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer done()
	leave, err := o.Drain.Enter()
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer leave()
	if progress == nil {
		progress = func(sandbox.Step) {}
	}
	if err := snapshot.CheckTag(req.Tag); err != nil {
		return sandbox.SnapshotInfo{}, sandbox.StoreError(err)
	}
	if err := sandbox.CheckLabels(req.Labels); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	c := &createOp{e: o, req: req, progress: progress}
	start := o.cfg.Now()
	var u undo.Stack
	defer u.Run() // on success too: the parent is no longer needed
	if err := c.judgeNetwork(); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if c.src, err = parentSourceOf(ctx, o.cfg.Images, req); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if err := o.reserve(c, &u); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	if err := c.run(ctx, &u); err != nil {
		err = fmt.Errorf("create snapshot %s: %w", req.Tag, c.explain(ctx, err))
		c.draft.Because(err)
		c.leaveReceipt(start, err)
		return sandbox.SnapshotInfo{}, err
	}
	c.leaveReceipt(start, nil)
	u.Run()
	o.pools.Touch(req.Tag, c.src.shape)
	o.catalog.HashLater(req.Tag)
	o.cfg.Logger.Info("snapshot created", "tag", req.Tag, "image", req.Image)
	return o.catalog.Get(req.Tag)
}

// reserve takes the tag.
func (o *Ops) reserve(c *createOp, u *undo.Stack) (err error) {
	c.draft, err = o.catalog.Begin(sandbox.SnapshotInfo{
		Tag: c.req.Tag, Owner: c.req.Owner, CreatedAt: o.cfg.Now(), Shape: c.src.shape,
		Image: c.src.image.Name, ImageDigest: c.src.image.Digest, Labels: c.req.Labels,
	}, false)
	if err != nil {
		return err
	}
	u.Push(c.draft.End)
	failpoint.Here(failpoint.CreateReserved)
	return nil
}

func (c *createOp) run(ctx context.Context, u *undo.Stack) error {
	// The parent may touch all its memory. It is better to refuse it than to have it killed later.
	release, err := c.e.admission.VM(admission.Parent(c.src.shape, c.src.upper))
	if err != nil {
		c.e.cfg.tellRefused("create", c.req.Tag, err)
		return err
	}
	u.Push(release)
	if err := c.takeRoot(ctx); err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		do   func(context.Context, *undo.Stack) (bytes int64, err error)
	}{
		{sandbox.StepBoot, c.boot}, {sandbox.StepWarm, c.warm}, {sandbox.StepQuiesce, c.quiesce}, {sandbox.StepSave, c.save},
	} {
		c.progress(sandbox.Step{Name: s.name})
		start := c.e.cfg.Now()
		n, err := s.do(ctx, u)
		step := sandbox.Step{Name: s.name, Done: true, Took: c.e.cfg.Now().Sub(start), Bytes: n, Guest: c.told}
		c.told = nil
		c.observe(step, err)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		c.steps = append(c.steps, step)
		if s.name != sandbox.StepSave { // the save is done when the manifest is written
			c.progress(step)
		}
	}
	if err := c.recordWorkingSet(ctx); err != nil {
		return err
	}
	if err := c.commit(); err != nil {
		return err
	}
	if err := c.e.checkCaptured(c.draft, c.digest); err != nil {
		return err
	}
	failpoint.Here(failpoint.CreateDone)
	c.progress(c.steps[len(c.steps)-1])
	return nil
}

func (c *createOp) observe(s sandbox.Step, err error) {
	switch s.Name {
	case sandbox.StepBoot:
		c.e.cfg.Observer.Observe(sandbox.OpBoot, s.Took, err)
	case sandbox.StepSave:
		c.e.cfg.Observer.Observe(sandbox.OpSave, s.Took, err)
	}
}

// bootOnce boots the parent and waits for its ready signal.
func (c *createOp) bootOnce(ctx context.Context, u *undo.Stack) (int64, error) {
	limit := c.req.BootWait
	if limit <= 0 {
		limit = c.e.cfg.BootWait
	}
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "no ready signal after %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	ready := newReadySignal()
	u.Push(ready.close)
	m, err := c.e.procs.Spawn(ctx, c.src.shape, vmproc.SpawnOptions{Dial: ready.dial,
		Bounds: vmproc.Bounds{Owner: c.req.Owner}})
	if err != nil {
		return 0, err
	}
	c.m = m
	u.Push(func() { m.Discard() })
	if c.wire, err = c.parentWire(ctx); err != nil {
		return 0, err
	}
	u.Push(func() { c.e.wires.Release(c.wire) })
	ctx, calm := m.WhileRoom(ctx, "the parent")
	defer calm()
	if err := c.bootWired(ctx, m); err != nil {
		if m.Alive() && ctx.Err() == nil { // the VMM refused the files
			err = sandbox.Errorf(sandbox.ErrBootFailed, sandbox.ReasonKernelUnusable, "%w", err)
		}
		return 0, err
	}
	select {
	case <-ready.done:
	case <-m.Proc.Done():
		return 0, vmproc.ErrNoVM
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	failpoint.Here(failpoint.CreateBooted)
	c.agent = m.NewAgent()
	u.Push(func() { c.agent.Close() })
	return 0, nil
}

// warm runs the recipe's warm-up, then the request's.
func (c *createOp) warm(ctx context.Context, _ *undo.Stack) (int64, error) {
	limit := cmp.Or(c.req.WarmTimeout, sandbox.DefaultWarmTimeout)
	if c.src.image.Ready != nil {
		limit += c.src.image.Ready.Timeout
	}
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "the warm-up timed out after %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	ctx, calm := c.m.WhileRoom(ctx, "the guest")
	defer calm()
	pong, err := c.agent.Ping(ctx)
	if err != nil {
		return 0, endedOrLate(ctx, err, late)
	}
	c.saidOf = snapshot.Agent{Version: pong.GetVersion(), Capabilities: pong.GetCapabilities()}.Bounded()
	if err := c.warmGuest(ctx, limit); err != nil {
		return 0, endedOrLate(ctx, err, late)
	}
	c.cacheShell(ctx)
	return 0, nil
}

// warmGuest starts the service and runs the warm-up steps. If the recipe has a service, warmGuest
// waits for it before the steps, which may need it. Otherwise it waits after the steps, for
// something they start.
func (c *createOp) warmGuest(ctx context.Context, limit time.Duration) error {
	if err := c.startService(ctx); err != nil {
		return err
	}
	if c.src.image.Start != "" {
		if err := c.awaitReady(ctx); err != nil {
			return err
		}
	}
	for i, s := range c.src.warm {
		if err := c.warmStep(ctx, i+1, s, limit); err != nil {
			return err
		}
	}
	if c.src.image.Start == "" {
		return c.awaitReady(ctx)
	}
	return nil
}

func (c *createOp) warmStep(ctx context.Context, n int, s sandbox.WarmStep, limit time.Duration) error {
	if args := warmProgram(s); args != nil {
		return c.runWarm(ctx, n, s.Language, args, limit)
	}
	req := &agentv1.WarmRequest{Steps: []*agentv1.WarmStep{{Language: s.Language, Code: s.Code, TimeoutNs: int64(limit)}}}
	answer, err := c.agent.Warm(ctx, req)
	if err != nil {
		return err
	}
	for _, r := range answer.GetResults() {
		if r.GetError() != "" {
			return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonWarmUpFailed, "%s code of step %d: %s\n%s",
				guesttext.Of(r.GetLanguage()), n, guesttext.Lines(r.GetError()), guesttext.Tail(r.GetTraceback()))
		}
	}
	return nil
}

// endedOrLate is like sandbox.Ended, for calls that pass their deadline to the guest. The guest may
// notice the deadline before we do.
func endedOrLate(ctx context.Context, err, late error) error {
	if ctx.Err() == nil && connect.CodeOf(err) == connect.CodeDeadlineExceeded {
		return late
	}
	return sandbox.Ended(ctx, err)
}

// quiesce brings the guest to rest and closes all connections into it.
func (c *createOp) quiesce(ctx context.Context, _ *undo.Stack) (int64, error) {
	const limit = time.Minute
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "quiesce timed out after %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	ctx, calm := c.m.WhileRoom(ctx, "the guest")
	defer calm()
	answer, err := c.agent.Quiesce(ctx, &agentv1.QuiesceRequest{})
	if err != nil {
		return 0, endedOrLate(ctx, err, late)
	}
	c.told = reported(answer.GetSteps())
	for _, s := range answer.GetSteps() {
		if s.GetError() != "" {
			return 0, fmt.Errorf("guest: %s: %s", guesttext.Of(s.GetName()), guesttext.Of(s.GetError()))
		}
	}
	return 0, c.agent.Close()
}

// save writes the VM into the draft.
func (c *createOp) save(ctx context.Context, u *undo.Stack) (int64, error) {
	memory, err := c.draft.Base(layer.Memory, c.src.shape.MemoryBytes())
	if err != nil {
		return 0, err
	}
	defer memory.Discard()
	state, err := c.draft.File(snapshot.StateFile)
	if err != nil {
		return 0, err
	}
	var upper *store.Draft
	var disks []*os.File
	if c.src.image.Upper != "" {
		if upper, err = c.draft.Base(layer.Disk, snapshot.Disk{Bytes: c.src.upper}.LayerBytes()); err != nil {
			return 0, err
		}
		defer upper.Discard()
		disks = append(disks, upper.File())
	}
	if c.digest, err = c.e.oracleFile(c.draft.Draft, u); err != nil {
		return 0, err
	}
	if err := c.m.Proc.Pause(ctx); err != nil {
		return 0, err
	}
	saved, err := c.m.Proc.Save(ctx, vmm.SaveConfig{Memory: memory.File(), State: state, Disks: disks, Digest: c.digest})
	if err != nil {
		return 0, err
	}
	// Before the slow fsync, so that the parent's memory is free while the layers become durable.
	c.m.Discard()
	if c.memory, err = c.place(memory, u); err != nil {
		return 0, err
	}
	if upper != nil {
		if c.upper, err = c.place(upper, u); err != nil {
			return 0, err
		}
	}
	failpoint.Here(failpoint.CreateSaved)
	return saved.MemoryBytes + saved.StateBytes + saved.DiskBytes, nil
}

// place makes a layer of the data written by the VMM, and opens it.
func (c *createOp) place(base *store.Draft, u *undo.Stack) (snapshot.Chain, error) {
	chain, err := c.draft.Place(base)
	if err != nil {
		return chain, err
	}
	opened, err := c.e.layers.Chain(chain.Layers...)
	if err != nil {
		return chain, err
	}
	u.Push(func() { opened.Close() })
	c.opened = append(c.opened, opened)
	return chain, nil
}

func (c *createOp) commit() error {
	m := &snapshot.Manifest{
		Owner:         c.req.Owner,
		CreatedUnixMS: c.e.cfg.Now().UnixMilli(),
		Shape:         c.src.shape,
		Cmdline:       c.src.cmdline,
		Memory:        c.memory,
		State:         snapshot.State{File: snapshot.StateFile},
		Disks:         []snapshot.Disk{{File: snapshot.DiskFile(0), ReadOnly: true}},
		Languages:     languages(c.src.warm),
		Agent:         c.saidOf,
		PublicPorts:   true, // of the operator's forks; the API makes a tenant's ports private
	}
	if c.req.Network != nil {
		m.Network = inherited(*c.req.Network)
	}
	if c.src.image.Upper != "" {
		m.Disks = append(m.Disks, snapshot.Disk{Bytes: c.src.upper, Chain: c.upper})
	}
	if img := c.src.image; img.Digest != "" {
		m.Image = &snapshot.Image{Name: img.Name, Digest: img.Digest, Kernel: img.KernelVersion}
	}
	describeCPU(m, c.draft.Draft)
	for _, s := range c.steps {
		m.Steps = append(m.Steps, snapshot.Step{Name: s.Name, TookMS: s.Took.Milliseconds(), Bytes: s.Bytes})
	}
	return c.draft.Commit(m)
}

// recordWorkingSet records the working sets of the snapshot's children.
func (c *createOp) recordWorkingSet(ctx context.Context) error {
	if c.e.cfg.NoWorkingSet {
		return nil
	}
	r := recorder{e: c.e, draft: c.draft, owner: c.req.Owner, src: c.draftSource(), shape: c.src.shape,
		languages: languages(c.src.warm), firstUse: c.src.image.FirstUse}
	return r.record(ctx)
}

// draftSource returns the files of the future snapshot.
func (c *createOp) draftSource() *launch.Source {
	r := vmm.RestoreConfig{
		State:  c.draft.Opened(snapshot.StateFile),
		Memory: launch.MemoryExtents(c.opened[0].Image),
		Disks:  []vmm.Disk{{File: c.draft.Opened(snapshot.DiskFile(0)), ReadOnly: true}},
		Watch:  true,
	}
	if c.src.image.Upper != "" {
		r.Disks = append(r.Disks, launch.LayeredDisk(c.opened[1].Image, c.src.upper))
	}
	return launch.NewDraftSource(c.req.Tag, c.saidOf, r)
}

// languages returns the languages with an interpreter that keeps running.
func languages(steps []sandbox.WarmStep) []string {
	var out []string
	for _, s := range steps {
		if warmProgram(s) == nil && !slices.Contains(out, s.Language) {
			out = append(out, s.Language)
		}
	}
	return out
}

// explain converts a step's error for the caller. It adds how the VM ended, if it did, and the
// console's last lines.
func (c *createOp) explain(ctx context.Context, err error) error {
	switch {
	case context.Cause(ctx) != nil: // cancelled by the caller; the guest did not fail
		return sandbox.Ended(ctx, err)
	case errors.Is(err, sandbox.ErrNoSpace), sandbox.IsNoSpace(err), errors.Is(err, vmm.ErrNoRoom):
		return sandbox.NoSpace(err)
	case errors.Is(err, sandbox.ErrInvalid), errors.Is(err, sandbox.ErrNoMemory), errors.Is(err, sandbox.ErrNoResources),
		errors.Is(err, sandbox.ErrBusy), errors.Is(err, sandbox.ErrBootFailed), errors.Is(err, storeerr.ErrExists):
		return sandbox.StoreError(err)
	case c.m == nil:
		return err
	}
	if gone(err) && c.m.WaitEnd(time.Second) {
		err = fmt.Errorf("%w: %s", err, c.m.EndReason())
	}
	text := "the console is empty"
	if tail := vmproc.TailLines(filepath.Join(c.m.Dir, client.ConsoleLog), vmproc.ConsoleTail); tail != "" {
		text = "the console's last lines:\n" + tail
	} else if used, err := hostproc.CPUTime(c.m.Proc.PID()); err == nil { // shows whether it spins or waits
		text += fmt.Sprintf("; its VMM has used %s of CPU time", used)
	}
	return sandbox.Errorf(sandbox.ErrBootFailed, "", "%w; %s", err, text)
}

// gone reports whether the end of the VM may have caused an error.
func gone(err error) bool {
	return !errors.Is(err, sandbox.ErrTimeout)
}

// parentSource holds the boot configuration of a parent.
type parentSource struct {
	image   sandbox.Image // Digest is empty for a bare kernel and root file system
	shape   vmspec.Shape
	upper   int64 // bytes of the disk for the guest's writes; 0 if it has none
	cmdline string
	warm    []sandbox.WarmStep
}

// Arguments added to vmspec.KernelArgs. An image's initrd switches to its root itself; a bare
// kernel mounts it.
const (
	imageArgs = "forkd.root=/dev/vda"
	upperArgs = "forkd.upper=/dev/vdb"
	bareArgs  = "root=/dev/vda ro init=/sbin/init"
)

func parentSourceOf(ctx context.Context, images sandbox.Images, req sandbox.CreateRequest) (s parentSource, err error) {
	bare := req.Kernel != "" || req.Rootfs != ""
	switch {
	case bare && req.Image != "":
		return s, sandbox.Errorf(sandbox.ErrInvalid, "", "name an image, or a kernel and a root file system, not both")
	case !bare && req.Image == "":
		return s, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonImageMissing, "no image named")
	case bare && (req.Kernel == "" || req.Rootfs == ""):
		return s, sandbox.Errorf(sandbox.ErrInvalid, "", "kernel and rootfs go together")
	case bare:
		s, err = bareSource(req)
	default:
		s, err = imageSource(ctx, images, req)
	}
	if err != nil {
		return s, err
	}
	if req.MemoryMiB != 0 {
		s.shape.MemoryMiB = req.MemoryMiB
	}
	if req.VCPUs != 0 {
		s.shape.VCPUs = req.VCPUs
	}
	if err := s.shape.Validate(); err != nil {
		return s, sandbox.Errorf(sandbox.ErrInvalid, "", "%w", err)
	}
	if req.Warm != "" {
		s.warm = append(slices.Clone(s.warm), sandbox.WarmStep{Language: "python", Code: req.Warm})
	}
	return s, nil
}

func imageSource(ctx context.Context, images sandbox.Images, req sandbox.CreateRequest) (s parentSource, err error) {
	if s.image, err = images.Image(ctx, req.Image); err != nil {
		return s, err
	}
	img := s.image
	s.shape = vmspec.Shape{MemoryMiB: img.MemoryMiB, VCPUs: img.VCPUs, Disks: 1, Slots: sandbox.MaxVolumes}
	s.warm = img.Warm
	args := []string{vmspec.KernelArgs, imageArgs}
	if img.Upper != "" {
		if s.upper, err = imageDiskSize(img.Upper); err != nil { // before a VM is started for it
			return s, err
		}
		s.shape.Disks++
		args = append(args, upperArgs)
	}
	s.cmdline = strings.TrimSpace(strings.Join(append(args, img.Cmdline), " "))
	return s, nil
}

// bareSource supports the original API, which named a parent by kernel and root file system.
func bareSource(req sandbox.CreateRequest) (s parentSource, err error) {
	for _, path := range []string{req.Kernel, req.Rootfs} {
		if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
			return s, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNotAFile, "%s is not a file", sandbox.Clip(path))
		}
	}
	s.image = sandbox.Image{Kernel: req.Kernel, Root: req.Rootfs}
	s.shape = vmspec.Shape{MemoryMiB: 512, VCPUs: 1, Disks: 1, Slots: sandbox.MaxVolumes}
	s.cmdline = vmspec.KernelArgs + " " + bareArgs
	return s, nil
}

// ParentMemoryMiB returns the guest memory of the VM that CreateSnapshot would boot for req.
func (o *Ops) ParentMemoryMiB(ctx context.Context, req sandbox.CreateRequest) (int, error) {
	s, err := parentSourceOf(ctx, o.cfg.Images, req)
	if err != nil {
		return 0, fmt.Errorf("create snapshot %s: %w", req.Tag, err)
	}
	return s.shape.MemoryMiB, nil
}

// boot passes the kernel, the initrd and the root disk to a shell. net is the shell's end of a
// wire, or nil.
func (s *parentSource) boot(ctx context.Context, e *Ops, m *vmproc.VM, net *os.File) error {
	genID, err := e.random(16)
	if err != nil {
		return err
	}
	c := vmm.BootConfig{Cmdline: s.cmdline, CID: m.CID, GenID: [16]byte(genID), Net: net}
	root, err := os.Open(s.image.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	disks := []vmm.Disk{{File: root, ReadOnly: true}}
	if s.image.Upper != "" {
		upper, err := os.Open(s.image.Upper)
		if err != nil {
			return err
		}
		defer upper.Close()
		d, err := imageDisk(upper)
		if err != nil {
			return err
		}
		disks = append(disks, d)
	}
	var closeOverlays func()
	if c.Disks, closeOverlays, err = m.OpenOverlays(disks, nil); err != nil {
		return err
	}
	defer closeOverlays()
	if c.Kernel, err = e.openKernel(ctx, s.image.Kernel); err != nil {
		return err
	}
	defer c.Kernel.Close()
	if s.image.Initrd != "" {
		if c.Initrd, err = os.Open(s.image.Initrd); err != nil {
			return err
		}
		defer c.Initrd.Close()
	}
	return m.Proc.Boot(ctx, c)
}
