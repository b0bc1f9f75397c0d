package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/agentv1"
	"github.com/forkd/forkd/internal/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/agentproto/process"
	"github.com/forkd/forkd/internal/agentproto/process/processconnect"
	"github.com/forkd/forkd/internal/cowdisk"
	"github.com/forkd/forkd/internal/hotset"
	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/vmmctl"
	"github.com/forkd/forkd/internal/vmspec"
)

// TestMain lets the test binary play the VMM: the engine starts it under that
// name. So the tests have real processes, sockets and an agent that answers,
// without KVM.
func TestMain(m *testing.M) {
	if os.Args[0] == "forkd-vmm" {
		if err := fakeVMM(); err != nil {
			fmt.Fprintln(os.Stderr, "fake VMM:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Args[0] == "forkd-daemon" {
		err := doomedDaemon(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
		fmt.Fprintln(os.Stderr, "doomed daemon:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// fake is a VMM whose guest is an HTTP server in the same process. Tests make it
// misbehave with tokens: files in RunDir/fake, each of which spoils one VM.
type fake struct {
	tokens  string
	dir     string // run directory
	console *os.File
	server  *vmmctl.Server
	ended   chan vmmctl.Exit

	mu    sync.Mutex
	st    vmmctl.Status
	agent agentv1.IdentityRequest
	mem   []byte
	size  int64
	gate  *startgate.Entrance // of the restore; nil: none
	disks []*cowdisk.Disk     // those with an own file
	bases [][]cowdisk.Extent  // of each of them
	owns  [][]*os.File        // of each: those of before, and the present one

	branched bool // its memory was captured from a running guest
	silent   bool
}

func fakeVMM() error {
	console := os.NewFile(vmmctl.FDConsole, "console")
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", vmmctl.FDConsole))
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f := &fake{dir: dir, tokens: filepath.Join(dir, "..", "..", "fake"), console: console, ended: make(chan vmmctl.Exit, 4)}
	f.st = vmmctl.Status{Version: vmmctl.Version, State: vmmctl.StateShell}
	if err := json.Unmarshal([]byte(os.Args[1]), &f.st.Shape); err != nil {
		return err
	}
	if f.spoiled("spawn") {
		return errors.New("no KVM today")
	}
	control, err := fakeListener(vmmctl.FDControl)
	if err != nil {
		return err
	}
	vsock, err := fakeListener(vmmctl.FDVsock)
	if err != nil {
		return err
	}
	f.server = vmmctl.NewServer(control, f)
	go f.serveAgent(vsock)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve() }()
	select {
	case e := <-f.ended:
		f.server.SendExit(e)
		if f.spoiled("linger") {
			time.Sleep(time.Hour) // its process outlives its word
		}
		return nil
	case err := <-served:
		return err
	}
}

func fakeListener(fd uintptr) (*net.UnixListener, error) {
	f := os.NewFile(fd, "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l.(*net.UnixListener), nil
}

// spoiled uses up a token of that name if there is one.
func (f *fake) spoiled(name string) bool {
	found, _ := filepath.Glob(filepath.Join(f.tokens, name+".*"))
	for _, t := range found {
		if os.Remove(t) == nil {
			return true
		}
	}
	return false
}

func (f *fake) Boot(r vmmctl.BootRequest) error {
	text, err := io.ReadAll(r.Kernel)
	if err != nil || string(text) != "a kernel" {
		return errors.New("the kernel is no kernel")
	}
	fmt.Fprintln(f.console, "booting with", r.Cmdline)
	if err := f.openDisks(r.Disks); err != nil {
		return err
	}
	f.set(vmmctl.StateRunning, r.CID)
	switch {
	case f.spoiled("boot-panic"):
		fmt.Fprintln(f.console, "[    0.5] Kernel panic - not syncing: no working init found\x1b[31m")
		f.ended <- vmmctl.Exit{Kind: vmmctl.ExitReset, Reason: "the guest asked for a reset"}
	case f.spoiled("boot-silent"):
		fmt.Fprintln(f.console, "waiting for nothing")
	default:
		go f.sayReady()
	}
	return nil
}

func (f *fake) sayReady() {
	if c, err := f.server.DialHost(context.Background(), 22); err == nil {
		fmt.Fprintln(f.console, "host port 22 is open!")
		c.Close()
	}
	c, err := f.server.DialHost(context.Background(), agentproto.ReadyPort)
	if err != nil {
		fmt.Fprintln(f.console, "dial host:", err)
		return
	}
	defer c.Close()
	io.WriteString(c, agentproto.ReadyMessage)
}

func (f *fake) Restore(r vmmctl.RestoreRequest) (res vmmctl.RestoreResult, err error) {
	state, err := io.ReadAll(io.NewSectionReader(r.State, 0, 1<<20)) // the offset is shared
	switch {
	case err != nil:
		return res, err
	case string(state) != "the state":
		return res, errors.New("section cpu: its checksum is wrong")
	case f.spoiled("restore-die"):
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case f.spoiled("restore-fail"):
		return res, errors.New("KVM said no")
	case f.spoiled("restore-hang"):
		time.Sleep(time.Hour)
	}
	if err := f.openDisks(r.Disks); err != nil {
		return res, err
	}
	seg := r.Memory[0]
	if seg.File == nil {
		return res, errors.New("it begins with zero pages")
	}
	last := r.Memory[len(r.Memory)-1]
	f.size = last.Offset + last.Length
	if f.mem, err = unix.Mmap(int(seg.File.Fd()), seg.FileOffset, int(seg.Length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE); err != nil {
		return res, err
	}
	f.branched = f.mem[0] == 1
	for page := range min(5, len(f.mem)/4096) { // what a guest dirties
		f.mem[page*4096] = 1
	}
	switch {
	case r.Prepare:
		f.set(vmmctl.StatePrepared, r.CID)
	case r.Gate != nil:
		f.gate, err = startgate.Load(r.Gate)
		f.set(vmmctl.StateArmed, r.CID)
	default:
		f.set(vmmctl.StateRunning, r.CID)
	}
	return res, err
}

func (f *fake) Arm(gate *os.File) (err error) {
	switch {
	case f.Status().State != vmmctl.StatePrepared:
		return vmmctl.ErrState
	case f.spoiled("arm-die"):
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case f.spoiled("arm-fail"):
		return errors.New("KVM said no")
	}
	f.gate, err = startgate.Load(gate)
	f.set(vmmctl.StateArmed, f.Status().CID)
	return err
}

// Capture puts one page of its own into the files, as if the guest had written it.
func (f *fake) Capture(r vmmctl.CaptureRequest) (res vmmctl.CaptureResult, err error) {
	defer func() {
		for _, file := range []*os.File{r.Memory, r.State, r.Index} {
			file.Close()
		}
	}()
	switch {
	case f.spoiled("capture-fail"):
		return res, errors.New("KVM said no")
	case r.MaxPause == time.Nanosecond:
		return res, fmt.Errorf("%w: 4096 bytes are left, about 1ms", vmmctl.ErrPause)
	}
	size := f.size
	if err := r.Memory.Truncate(size); err != nil {
		return res, err
	}
	if _, err := r.Memory.WriteAt(f.mem[:4096], 0); err != nil {
		return res, err
	}
	var w hotset.Writer
	if err := w.Add(hotset.Run{Length: 4096, Written: true}); err != nil {
		return res, err
	}
	if _, err := r.Index.Write(w.Bytes(size)); err != nil {
		return res, err
	}
	for i, own := range r.Disks {
		f.owns[i] = append(f.owns[i], own)
		frozen, err := f.disks[i].Rotate(own)
		if err != nil {
			return res, err
		}
		f.mu.Lock()
		if f.st.Rotations == nil {
			f.st.Rotations = make([]int, len(f.disks))
		}
		f.st.Rotations[i]++
		f.mu.Unlock()
		if err := frozen.SaveMap(); err != nil {
			return res, err
		}
		if f.spoiled("capture-late") {
			return res, errors.New("the vCPU does not run")
		}
		// The guest goes on: what it writes now is in no snapshot.
		line := make([]byte, 4096)
		if _, err := f.disks[i].ReadAt(line, 4096); err != nil {
			return res, err
		}
		line = fmt.Appendf(bytes.TrimRight(line, "\x00"), "branch %d\n", f.st.Rotations[i])
		if _, err := f.disks[i].WriteAt(line, 4096); err != nil {
			return res, err
		}
		if err := f.disks[i].Flush(); err != nil {
			return res, err
		}
	}
	_, err = r.State.WriteString("the state")
	return vmmctl.CaptureResult{PauseNanos: 2e6, Mechanism: "wp-async", Rounds: 1, Bytes: 4096, PausedBytes: 4096, RunningAt: startgate.Now(),
		Pause: []vmmctl.PauseStep{{Name: "copy", Nanos: 2e6}}}, err
}

func (f *fake) Captured() error {
	switch {
	case f.spoiled("captured-fail"):
		return errors.New("write memory at 0: no space left on device")
	case f.spoiled("captured-slow"):
		time.Sleep(300 * time.Millisecond)
	}
	return nil
}

func (f *fake) Rebase(r vmmctl.RebaseRequest) error {
	if f.spoiled("rebase-fail") {
		return errors.New("no rebase today")
	}
	for i, b := range r.Bases {
		var base []cowdisk.Extent
		for _, s := range b {
			base = append(base, cowdisk.Extent{File: s.File, FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length})
		}
		if err := f.disks[i].Rebase(base); err != nil {
			return err
		}
		last := len(f.owns[i]) - 1
		for _, spent := range f.owns[i][:last] {
			spent.Close()
		}
		for _, e := range f.bases[i] { // some more than once
			e.File.Close()
		}
		f.bases[i], f.owns[i] = base, f.owns[i][last:]
	}
	return nil
}

func (f *fake) Pause() error { f.set(vmmctl.StatePaused, 0); return nil }
func (f *fake) Resume() (vmmctl.ResumeResult, error) {
	if f.gate != nil && !f.gate.Wait(func() bool { return false }) {
		return vmmctl.ResumeResult{}, errors.New("it did not wait")
	}
	f.set(vmmctl.StateRunning, 0)
	return vmmctl.ResumeResult{RunningAt: startgate.Now()}, nil
}

func (f *fake) Save(memory, state *os.File, disks []*os.File) (vmmctl.SaveResult, error) {
	if f.spoiled("save-hang") {
		time.Sleep(time.Hour)
	}
	if f.spoiled("save-full") {
		memory.WriteAt([]byte("half"), 0)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			return vmmctl.SaveResult{}, err
		}
		defer full.Close()
		_, err = full.WriteString("x")
		return vmmctl.SaveResult{}, fmt.Errorf("write memory: %w", err)
	}
	start, err := memory.Seek(0, io.SeekCurrent)
	if err != nil {
		return vmmctl.SaveResult{}, err
	}
	if _, err := memory.WriteAt([]byte("warm memory"), start+1<<20); err != nil {
		return vmmctl.SaveResult{}, err
	}
	if len(disks) != len(f.disks) {
		return vmmctl.SaveResult{}, fmt.Errorf("%d files for %d disks", len(disks), len(f.disks))
	}
	for i, d := range f.disks {
		if _, err := d.CopyTo(disks[i]); err != nil {
			return vmmctl.SaveResult{}, err
		}
	}
	_, err = state.WriteString("the state")
	return vmmctl.SaveResult{MemoryBytes: 11, StateBytes: 9}, err
}

// openDisks has the guest add a line to each disk that it can write: its own name,
// before those of its ancestors.
func (f *fake) openDisks(disks []vmmctl.Disk) error {
	if len(disks) != f.st.Shape.Disks {
		return fmt.Errorf("%d disks, want %d", len(disks), f.st.Shape.Disks)
	}
	for _, d := range disks {
		if d.Own == nil {
			continue
		}
		var base []cowdisk.Extent
		for _, s := range d.Base {
			base = append(base, cowdisk.Extent{File: s.File, FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length})
		}
		disk, err := cowdisk.Open(d.Own, d.Size, base)
		if err != nil {
			return err
		}
		b := make([]byte, 4096)
		if _, err := disk.ReadAt(b, 0); err != nil {
			return err
		}
		line := fmt.Sprintf("%s\n%s", filepath.Base(f.dir), bytes.TrimRight(b, "\x00"))
		if _, err := disk.WriteAt([]byte(line), 0); err != nil {
			return err
		}
		if err := disk.Flush(); err != nil {
			return err
		}
		f.disks, f.bases, f.owns = append(f.disks, disk), append(f.bases, base), append(f.owns, []*os.File{d.Own})
	}
	return nil
}

// WriteHot and Populate know no pages: the engine must not look at them.
func (f *fake) WriteHot(hot *os.File) (vmmctl.HotResult, error) {
	if f.spoiled("hot-fail") {
		return vmmctl.HotResult{}, errors.New("no pagemap today")
	}
	_, err := hot.WriteString("the hot set")
	return vmmctl.HotResult{Runs: 1}, err
}

func (f *fake) Populate(hot *os.File) (vmmctl.HotResult, error) {
	b := make([]byte, 32)
	n, _ := hot.ReadAt(b, 0)
	if f.spoiled("populate-fail") || string(b[:n]) != "the hot set" {
		return vmmctl.HotResult{}, errors.New("this is no hot set")
	}
	if f.spoiled("populate-die") {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return vmmctl.HotResult{}, os.WriteFile(filepath.Join(f.dir, "populated"), nil, 0o600)
}

func (f *fake) Status() vmmctl.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st
}

func (f *fake) set(s vmmctl.State, cid uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.st.State = s
	if cid != 0 {
		f.st.CID = cid
	}
}

// serveAgent is the guest: it answers CONNECT and then speaks HTTP.
func (f *fake) serveAgent(l *net.UnixListener) {
	conns := &handover{c: make(chan net.Conn)}
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewAgentHandler(&fakeAgent{f: f}))
	mux.Handle(processconnect.NewProcessHandler(&fakeProcess{f: f}))
	if !f.spoiled("inventory-none") {
		mux.Handle(agentv1connect.NewInventoryHandler(&fakeInventory{f: f}))
	}
	go http.Serve(conns, mux)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			if f.spoiled("reset") { // by a close with something unread (unix(7))
				_, _ = c.Read(make([]byte, 1))
				c.Close()
				return
			}
			r := bufio.NewReader(c)
			line, _ := r.ReadString('\n')
			if f.mute() {
				return // and leaves the connection open
			}
			if line != fmt.Sprintf("CONNECT %d\n", agentproto.AgentPort) || f.spoiled("refuse") {
				c.Close()
				return
			}
			io.WriteString(c, "OK 1\n")
			conns.c <- c
		}()
	}
}

// mute makes a guest of one that has a token, for good: it is there and never answers.
func (f *fake) mute() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = f.silent || f.spoiled("mute")
	return f.silent
}

type handover struct{ c chan net.Conn }

func (h *handover) Accept() (net.Conn, error) { return <-h.c, nil }
func (h *handover) Close() error              { return nil }
func (h *handover) Addr() net.Addr            { return &net.UnixAddr{} }

type fakeAgent struct {
	agentv1connect.UnimplementedAgentHandler
	f *fake
}

func (a *fakeAgent) Ping(context.Context, *connect.Request[agentv1.PingRequest]) (*connect.Response[agentv1.PingResponse], error) {
	return connect.NewResponse(&agentv1.PingResponse{
		Pid: 1, Version: "fake", UptimeNs: int64(time.Second),
		Interpreters: []*agentv1.Interpreter{{Language: "python", Modules: map[string]string{"numpy": "2.0"}}},
	}), nil
}

func (a *fakeAgent) Identity(ctx context.Context, r *connect.Request[agentv1.IdentityRequest]) (*connect.Response[agentv1.IdentityResponse], error) {
	switch {
	case a.f.spoiled("identity-hang"):
		<-ctx.Done()
		return nil, ctx.Err()
	case a.f.spoiled("identity-die"):
		fmt.Fprintln(a.f.console, "Kernel panic - not syncing: out of luck")
		a.f.ended <- vmmctl.Exit{Kind: vmmctl.ExitReset, Reason: "reset"}
		time.Sleep(time.Hour)
	case a.f.spoiled("identity-clone"):
		return connect.NewResponse(&agentv1.IdentityResponse{}), nil
	case len(r.Msg.GetEntropy()) < 32:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("too little entropy"))
	}
	sum := sha256.Sum256(r.Msg.GetEntropy())
	a.f.mu.Lock()
	a.f.agent.SandboxId, a.f.agent.Index, a.f.agent.Parent = r.Msg.GetSandboxId(), r.Msg.GetIndex(), r.Msg.GetParent()
	a.f.agent.MachineId, a.f.agent.Env, a.f.agent.Entropy = r.Msg.GetMachineId(), r.Msg.GetEnv(), sum[:]
	a.f.agent.ForkToken = r.Msg.GetForkToken()
	a.f.mu.Unlock()
	return connect.NewResponse(&agentv1.IdentityResponse{KernelReseeded: true, RandomDigest: sum[:]}), nil
}

func (a *fakeAgent) Warm(ctx context.Context, r *connect.Request[agentv1.WarmRequest]) (*connect.Response[agentv1.WarmResponse], error) {
	if a.f.spoiled("warm-hang") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var out agentv1.WarmResponse
	for _, s := range r.Msg.GetSteps() {
		res := &agentv1.WarmResult{Language: s.GetLanguage()}
		if strings.Contains(s.GetCode(), "raise") {
			res.Error, res.Traceback = "ValueError", "Traceback: line 1"
		}
		out.Results = append(out.Results, res)
	}
	return connect.NewResponse(&out), nil
}

// Eval answers what it was told: the identity's fields by name, and a few acts.
func (a *fakeAgent) Eval(ctx context.Context, r *connect.Request[agentv1.EvalRequest]) (*connect.Response[agentv1.EvalResponse], error) {
	a.f.mu.Lock()
	id := &a.f.agent
	answers := map[string]string{
		"entropy": fmt.Sprintf("%x", id.GetEntropy()), "machine_id": id.GetMachineId(), "sandbox_id": id.GetSandboxId(),
		"index": fmt.Sprint(id.GetIndex()), "token": id.GetForkToken(), "env": fmt.Sprint(id.GetEnv()),
	}
	a.f.mu.Unlock()
	code := r.Msg.GetCode()
	if request, is := strings.CutPrefix(code, "call "); is {
		return a.f.callHost(ctx, []byte(request))
	}
	switch code {
	case "raise":
		return connect.NewResponse(&agentv1.EvalResponse{Error: "ValueError", Traceback: "Traceback: ValueError", ExitCode: 1}), nil
	case "slow":
		return connect.NewResponse(&agentv1.EvalResponse{TimedOut: true}), nil
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case "panic":
		fmt.Fprint(a.f.console, "[    7.1] BUG: kernel NULL pointer dereference, address: 0\x1b[31m\n[    7.2] Kernel panic - not syncing: Fatal exception\n")
		a.f.ended <- vmmctl.Exit{Kind: vmmctl.ExitReset, Reason: "reset"}
		time.Sleep(time.Hour)
		return nil, nil
	case "poweroff":
		a.f.ended <- vmmctl.Exit{Kind: vmmctl.ExitPowerOff, Reason: "power off"}
		time.Sleep(time.Hour)
		return nil, nil
	default:
		return connect.NewResponse(&agentv1.EvalResponse{Result: answers[code], Stdout: "out"}), nil
	}
}

func (a *fakeAgent) Quiesce(context.Context, *connect.Request[agentv1.QuiesceRequest]) (*connect.Response[agentv1.QuiesceResponse], error) {
	var out agentv1.QuiesceResponse
	if a.f.spoiled("quiesce-fail") {
		out.Steps = []*agentv1.IdentityStep{{Name: "sync", Error: "the disk hums"}}
	}
	return connect.NewResponse(&out), nil
}

// fakeInventory has a file more in a guest whose memory was captured.
type fakeInventory struct{ f *fake }

func (i *fakeInventory) List(ctx context.Context, _ *connect.Request[agentv1.ListRequest], out *connect.ServerStream[agentv1.InventoryPart]) error {
	part := &agentv1.InventoryPart{Files: []*agentv1.InventoryFile{{Path: []byte("/a")}}}
	if i.f.branched {
		part.Files = append(part.Files, &agentv1.InventoryFile{Path: []byte("/b"), Size: 3})
	}
	switch {
	case i.f.spoiled("inventory-hang"):
		<-ctx.Done()
	case i.f.spoiled("inventory-lie"):
		part.Files = append(part.Files, part.Files[0])
	case i.f.spoiled("inventory-break"):
		return out.Send(part)
	case i.f.spoiled("inventory-die"):
		if err := out.Send(part); err != nil {
			return err
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err := out.Send(part); err != nil {
		return err
	}
	return out.Send(&agentv1.InventoryPart{End: &agentv1.InventoryEnd{}})
}

type fakeProcess struct {
	processconnect.UnimplementedProcessHandler
	f *fake
}

func (p *fakeProcess) Start(ctx context.Context, r *connect.Request[process.StartRequest], s *connect.ServerStream[process.StartResponse]) error {
	send := func(e *process.ProcessEvent) error { return s.Send(&process.StartResponse{Event: e}) }
	end := &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}
	switch r.Msg.GetProcess().GetCmd() {
	case "echo":
		data := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(strings.Join(r.Msg.GetProcess().GetArgs(), " "))}}
		if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}}); err != nil {
			return err
		}
	case "segv":
		end = &process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: segmentation fault (core dumped)"}
	case "hang":
		if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}); err != nil {
			return err
		}
		<-ctx.Done()
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	default:
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("no such program: %s", r.Msg.GetProcess().GetCmd()))
	}
	return send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
}

var _ vmmctl.Handler = (*fake)(nil)

// fakeShape is what the tests' image asks for: the least there can be.
var fakeShape = vmspec.Shape{MemoryMiB: vmspec.MinMemoryMiB, VCPUs: 1, Disks: 1}
