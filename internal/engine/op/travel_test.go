package op_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/signature"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// intel is a processor that can run the fake VMs.
func intel() (hostproc.CPU, error) {
	return hostproc.CPU{Vendor: "GenuineIntel", Flags: []string{"avx2"}}, nil
}

// sent returns a snapshot as a stream for a daemon.
func sent(t *testing.T, e *engine.Engine, tag string, probe bool) []byte {
	t.Helper()
	var b, out bytes.Buffer
	if err := e.ExportSnapshot(t.Context(), sandbox.ExportRequest{Tag: tag}, &b); err != nil {
		t.Fatal(err)
	}
	l, err := hub.OpenLayout(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := (&hub.Outgoing{Raw: l.Raw, Artifact: l.Artifact, Open: l.Blob}).Write(&out, probe); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestASnapshotTravelsToAnotherHost(t *testing.T) {
	one, two := enginefake.NewHost(t), enginefake.NewHost(t)
	a, b := one.Open(), two.Open()
	b.CPU = intel
	sb := one.Disky(a, 1)[0]
	if err := one.Branch(a, sb.ID, "x"); err != nil {
		t.Fatal(err)
	}
	stream := sent(t, a, "x", false)
	put := func(req sandbox.ImportRequest, b *engine.Engine, stream []byte) error {
		_, err := b.ImportSnapshot(t.Context(), req, bytes.NewReader(stream))
		return err
	}
	if err := put(sandbox.ImportRequest{Tag: "y", Check: true}, b, sent(t, a, "x", true)); err != nil {
		t.Fatal(err)
	}
	if list, _ := b.ListSnapshots(t.Context()); len(list) != 0 {
		t.Errorf("a check made %+v", list)
	}
	if err := put(sandbox.ImportRequest{Tag: "y", Owner: "acme"}, b, stream); err != nil {
		t.Fatal(err)
	}
	info, err := b.SnapshotInfo(t.Context(), "y")
	if err != nil || info.Owner != "acme" || info.ParentTag != "" || info.BranchedFrom != "" || info.ChainDepth() != 0 {
		t.Errorf("%+v %v", info, err)
	}
	if got, want := diskOf(two, "y"), diskOf(one, "x"); got != want {
		t.Errorf("the disk is %q, want %q", got, want)
	}
	two.Fork(b, "y", 2)
	if err := put(sandbox.ImportRequest{Tag: "y"}, b, stream); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a tag that is taken: %v", err)
	}
	if err := put(sandbox.ImportRequest{Tag: "../y"}, b, stream); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("no tag: %v", err)
	}
}

// The content of volumes is a part of a snapshot: its children have clones on another host too, where no volume is made.
func TestVolumesTravelWithASnapshot(t *testing.T) {
	one, two := enginefake.NewHost(t), enginefake.NewHost(t)
	one.Fault("agent-of-now", 20)
	two.Fault("agent-of-now", 20)
	a, b := one.Open(), two.Open()
	b.CPU = intel
	one.Disky(a, 0)
	if _, err := a.TenantVolumes().Create("acme", "data", 64<<20); err != nil {
		t.Fatal(err)
	}
	r, err := a.Fork(t.Context(), sandbox.ForkRequest{Tag: "d", N: 1, Owner: "acme",
		Volumes: []sandbox.VolumeMount{{Name: "data", Path: "/data"}}})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(err, r.Children)
	}
	source := r.Children[0].Info.ID
	if err := one.Branch(a, source, "x"); err != nil {
		t.Fatal(err)
	}
	if err := a.Kill(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ImportSnapshot(t.Context(), sandbox.ImportRequest{Tag: "y", Owner: "globex"},
		bytes.NewReader(sent(t, a, "x", false))); err != nil {
		t.Fatal(err)
	}
	for h, tag := range map[*enginefake.Host]string{one: "x", two: "y"} {
		e := map[*enginefake.Host]*engine.Engine{one: a, two: b}[h]
		info, err := e.SnapshotInfo(t.Context(), tag)
		if err != nil || len(info.Volumes) != 1 || info.Volumes[0].Name != "data" || info.Volumes[0].Path != "/data" ||
			info.Volumes[0].Mode != sandbox.VolumeClone || info.Volumes[0].Bytes != 64<<20 {
			t.Errorf("snapshot %s has volumes %+v, %v", tag, info.Volumes, err)
		}
		writer, _, _ := strings.Cut(diskOf(h, tag), "\n") // the fake guest writes its name to all disks
		if got := textOf(h, tag, 2, 1024); writer == "" || got != writer+"\n" {
			t.Errorf("the volume in snapshot %s has %q, want %q", tag, got, writer)
		}
	}
	if list := b.TenantVolumes().List("globex"); len(list) != 0 {
		t.Errorf("the import made %+v", list)
	}
	fork := func(volumes ...sandbox.VolumeMount) (sandbox.Info, error) {
		r, err := b.Fork(t.Context(), sandbox.ForkRequest{Tag: "y", N: 1, Owner: "globex", Volumes: volumes})
		if err != nil {
			return sandbox.Info{}, err
		}
		return r.Children[0].Info, r.Children[0].Err
	}
	child, err := fork()
	if err != nil || len(child.Volumes) != 1 || child.Volumes[0].Mode != sandbox.VolumeClone {
		t.Fatalf("a child has %+v, %v", child.Volumes, err)
	}
	// A volume of the receiver is another one, even if it has the same name.
	_, err = fork(sandbox.VolumeMount{Name: "data", Path: "/own"})
	enginefake.WantError(t, err, sandbox.ErrNotFound, "data")
	if _, err := b.TenantVolumes().Create("globex", "data", 64<<20); err != nil {
		t.Fatal(err)
	}
	_, err = fork(sandbox.VolumeMount{Name: "data", Path: "/data"})
	enginefake.WantError(t, err, sandbox.ErrConflict, "/data", "already")
	child, err = fork(sandbox.VolumeMount{Name: "data", Path: "/own"})
	if err != nil || len(child.Volumes) != 2 || child.Volumes[1].Mode != sandbox.VolumePrivate {
		t.Fatalf("a child has %+v, %v", child.Volumes, err)
	}
	if err := b.Kill(t.Context(), child.ID); err != nil {
		t.Fatal(err)
	}
	if v, err := b.TenantVolumes().Get("globex", "data"); err != nil || v.Holder != "" {
		t.Errorf("the receiver's volume is in %q, %v", v.Holder, err)
	}
	if err := b.TenantVolumes().Remove("globex", "data"); err != nil {
		t.Error(err)
	}
}

func TestASnapshotOfAnotherCPUIsRefused(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "x")
	probe := sent(t, e, "x", true)
	for want, cpu := range map[string]hostproc.CPU{
		"AuthenticAMD": {Vendor: "AuthenticAMD", Flags: []string{"avx2"}}, "avx2": {Vendor: "GenuineIntel"},
	} {
		e.CPU = func() (hostproc.CPU, error) { return cpu, nil }
		_, err := e.ImportSnapshot(t.Context(), sandbox.ImportRequest{Tag: "y", Check: true}, bytes.NewReader(probe))
		enginefake.WantError(t, err, storeerr.ErrNotRestorable, want)
	}
}

// A policy of signatures holds for a check and for an import, and its refusal says who decides.
func TestAnUnsignedSnapshotIsRefused(t *testing.T) {
	one, two := enginefake.NewHost(t), enginefake.NewHost(t)
	private, public, err := signature.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signature.ParsePrivate(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := signature.ParsePublic(public)
	if err != nil {
		t.Fatal(err)
	}
	policy := signature.Policy{Rules: []signature.Rule{
		{Repositories: []string{"registry.example.com/team/*"}, Keys: []*signature.PublicKey{trusted}}}}
	two.Cfg.SnapshotTrust = policy.Check
	a, b := one.Open(), two.Open()
	b.CPU = intel
	one.Snapshot(a, "x")
	for _, check := range []bool{true, false} {
		_, err := b.ImportSnapshot(t.Context(), sandbox.ImportRequest{Tag: "y", Check: check}, bytes.NewReader(sent(t, a, "x", check)))
		enginefake.WantError(t, err, sandbox.ErrForbidden, "operator")
	}
	var layout bytes.Buffer
	if err := a.ExportSnapshot(t.Context(), sandbox.ExportRequest{Tag: "x"}, &layout); err != nil {
		t.Fatal(err)
	}
	l, err := hub.OpenLayout(bytes.NewReader(layout.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string]error{"registry.example.com/other": sandbox.ErrForbidden, "registry.example.com/team/x": nil} {
		s, err := key.Sign(repository, signature.Describe("", l.Raw).Digest)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		send := hub.Outgoing{Raw: l.Raw, Artifact: l.Artifact, Signatures: []signature.Signature{s}, Open: l.Blob}
		if err := send.Write(&out, false); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ImportSnapshot(t.Context(), sandbox.ImportRequest{Tag: "y"}, &out); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", repository, err, want)
		}
	}
}

// An import that ends early leaves no layer.
func TestAnInterruptedImportLeavesNoLayers(t *testing.T) {
	one, two := enginefake.NewHost(t), enginefake.NewHost(t)
	a, b := one.Open(), two.Open()
	b.CPU = intel
	one.Snapshot(a, "x")
	stream := sent(t, a, "x", false)
	for _, n := range []int{100, len(stream) / 2, len(stream) - 2048} {
		_, err := b.ImportSnapshot(t.Context(), sandbox.ImportRequest{Tag: "y"}, io.LimitReader(bytes.NewReader(stream), int64(n)))
		if !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	if _, err := b.CollectLayers(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if r, err := b.CollectLayers(t.Context(), true); err != nil || len(r.Layers)+r.Temporary > 0 || two.Stored() != "" {
		t.Errorf("left are %+v and %q, %v", r, two.Stored(), err)
	}
}

func TestASecretOfASandboxIsNotSent(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "x")
	err := e.ExportSnapshot(t.Context(), sandbox.ExportRequest{Tag: "x", Secrets: []string{"cpuid"}}, io.Discard) // in the state
	if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "access token") {
		t.Errorf("%v", err)
	}
}
