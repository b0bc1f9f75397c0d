package op_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// forkWith forks a child of a snapshot with volumes.
func forkWith(t *testing.T, e *engine.Engine, tag, owner string, volumes ...sandbox.VolumeMount) (sandbox.Info, error) {
	t.Helper()
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: tag, N: 1, Owner: owner, Volumes: volumes})
	if err != nil {
		return sandbox.Info{}, err
	}
	return r.Children[0].Info, r.Children[0].Err
}

// withVolume makes an engine with the snapshot "d", and a sandbox of acme with the volume "data".
func withVolume(h *enginefake.Host) (*engine.Engine, sandbox.Info) {
	h.T.Helper()
	h.Fault("agent-of-now", 40)
	e := h.Open()
	h.Disky(e, 0)
	if _, err := e.TenantVolumes().Create("acme", "data", 64<<20); err != nil {
		h.T.Fatal(err)
	}
	sb, err := forkWith(h.T, e, "d", "acme", sandbox.VolumeMount{Name: "data", Path: "/data"})
	if err != nil {
		h.T.Fatal(err)
	}
	return e, sb
}

// Another owner's volume is refused like one that does not exist: held, free or in a paused sandbox.
func TestAVolumeOfAnotherOwner(t *testing.T) {
	h := enginefake.NewHost(t)
	e, sb := withVolume(h)
	v, err := e.TenantVolumes().Get("acme", "data")
	if err != nil {
		t.Fatal(err)
	}
	refused := func(state string) {
		for _, mode := range []sandbox.VolumeMode{sandbox.VolumePrivate, sandbox.VolumeClone, sandbox.VolumeShareRO, sandbox.VolumeMove} {
			for _, owner := range []string{"evil", ""} {
				fork := func(name string) string {
					_, err := forkWith(t, e, "d", owner, sandbox.VolumeMount{Name: name, Path: "/data", Mode: mode})
					enginefake.WantError(t, err, sandbox.ErrNotFound, name)
					if err == nil {
						return ""
					}
					return strings.ReplaceAll(err.Error(), name, "NAME")
				}
				want := fork("absent")
				for _, name := range []string{"data", v.ID} {
					if got := fork(name); got != want {
						t.Errorf("%s, %s, owner %q: %q, want %q", state, mode, owner, got, want)
					}
				}
			}
		}
	}
	refused("held")
	h.Pause(e, sb.ID)
	refused("paused")
	if now, err := e.Get(sb.ID); err != nil || now.Volumes[0].Mode != sandbox.VolumePrivate {
		t.Errorf("the paused sandbox has %+v, %v", now.Volumes, err)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	refused("free")
}

// A sandbox may have a volume and, from its snapshot, a clone of the same volume. A move takes and returns the volume
// only.
func TestAMoveLeavesTheCloneOfTheSameVolume(t *testing.T) {
	h := enginefake.NewHost(t)
	e, sb := withVolume(h)
	if err := h.Branch(e, sb.ID, "x"); err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	both, err := forkWith(t, e, "x", "acme", sandbox.VolumeMount{Name: "data", Path: "/own"})
	if err != nil {
		t.Fatal(err)
	}
	h.Pause(e, both.ID)
	modes := func(want ...sandbox.VolumeMode) {
		t.Helper()
		now, err := e.Get(both.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []sandbox.VolumeMode
		for _, v := range now.Volumes {
			got = append(got, v.Mode)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the paused sandbox has its volumes as %v, want %v", got, want)
		}
	}
	move := sandbox.VolumeMount{Name: "data", Path: "/data", Mode: sandbox.VolumeMove}
	h.Fault("spawn", 1)
	if _, err := forkWith(t, e, "d", "acme", move); err == nil {
		t.Fatal("the fork did not fail")
	}
	modes(sandbox.VolumeClone, sandbox.VolumePrivate)
	if _, err := forkWith(t, e, "d", "acme", move); err != nil {
		t.Fatal(err)
	}
	modes(sandbox.VolumeClone, sandbox.VolumeClone)
	h.Resume(e, both.ID)
}
