package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// damaged copies a snapshot to a tag and calls damage on its folder. At the end of the test it
// deletes the copy, as a user would.
func (d *daemon) damaged(from, tag string, damage func(dir string)) {
	d.t.Helper()
	t := d.t
	dir := d.copySnapshot(from, tag)
	damage(dir)
	if err := d.Give(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.c.DeleteSnapshot(context.Background(), tag, client.DeleteOptions{}); err != nil && !client.IsNotFound(err) {
			t.Errorf("delete it: %v", err)
		}
		os.RemoveAll(dir)
	})
}

// hashed waits until a snapshot's digests exist.
func (d *daemon) hashed(tag string) {
	d.t.Helper()
	eventually(d.t, "digests of "+tag, func() bool {
		_, err := os.Stat(filepath.Join(d.store(), tag, snapshot.DigestFile))
		return err == nil
	})
}

// copySnapshot copies the files changed by tests, and links the rest.
func (d *daemon) copySnapshot(from, tag string) string {
	d.t.Helper()
	source, dir := filepath.Join(d.store(), from), filepath.Join(d.store(), tag)
	if err := errors.Join(cloneSnapshot(source, dir, tag), d.Give(dir)); err != nil {
		d.t.Fatal(err)
	}
	return dir
}

func cloneSnapshot(source, dir, tag string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range names(source) {
		from, to := filepath.Join(source, name), filepath.Join(dir, name)
		if strings.HasPrefix(name, "disk") { // large
			if err := link(from, to); err != nil {
				return err
			}
			continue
		}
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			return err
		}
	}
	return editManifest(dir, func(m map[string]any) { m["tag"] = tag })
}

// editManifest changes a manifest without any validation.
func editManifest(dir string, change func(m map[string]any)) error {
	path := filepath.Join(dir, snapshot.ManifestFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		return err
	}
	change(m)
	if b, err = json.Marshal(m); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// flip changes one bit of a file.
func flip(t *testing.T, path string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, unix.EPERM) { // fs-verity protects its content: another file replaces it
		writable(t, path)
		f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, offset); err != nil {
		t.Fatal(err)
	}
}

// writable replaces a file with a copy.
func writable(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path+".copy", b, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".copy", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks the error of a fork of a damaged snapshot, in the API and the CLI.
func (d *daemon) refused(tag string, words ...string) {
	d.t.Helper()
	n := 2
	_, err := d.c.Fork(d.t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
	wantError(d.t, err, api.CodeNotRestorable, append(words, "snapshot "+tag)...)
	if code, _, errs := d.cli("fork", tag); code != 5 || !strings.Contains(errs, words[0]) || !strings.Contains(errs, "forkd snapshot create") {
		d.t.Errorf("the CLI's exit code is %d, want 5: %s", code, errs)
	}
}

func TestAFlippedByteInTheState(t *testing.T) {
	d := shared(t)
	small := d.small()
	d.hashed(small)
	d.unchanged()
	d.damaged(small, "flipped-state", func(dir string) { flip(t, filepath.Join(dir, snapshot.StateFile), 5000) })
	d.refused("flipped-state", "file vmstate", "changed since it was written")
	code, out, errs := d.cli("snapshot", "verify", "flipped-state")
	if code != 5 || !strings.Contains(out, "vmstate") || !strings.Contains(errs, "is damaged in 1 place") {
		t.Errorf("verify: exit code %d: %s %s", code, out, errs)
	}
}

func TestAFlippedByteInTheMemory(t *testing.T) {
	d := shared(t)
	small := d.small()
	d.unchanged()
	layer := d.compacted(small, "flipped-memory")
	d.hashed("flipped-memory")
	at := damageLayer(t, layer)
	r, err := d.c.VerifySnapshot(t.Context(), "flipped-memory", nil)
	if err != nil || r.OK || len(r.Damaged) != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
	name := "layers/" + filepath.Base(layer)
	if g := r.Damaged[0]; g.File != name || at < g.Offset || at >= g.Offset+g.Length || !strings.Contains(g.Detail, "changed since it was written") {
		t.Errorf("got %+v for a flip at %d of %s", g, at, name)
	}
	if code, out, errs := d.cli("snapshot", "verify", "flipped-memory"); code != 5 || !strings.Contains(out, name+": bytes") || !strings.Contains(errs, "rebuild") {
		t.Errorf("exit code %d: %s %s", code, out, errs)
	}
	d.hashed(small)
	if r, err := d.c.VerifySnapshot(t.Context(), small, nil); err != nil || !r.OK {
		t.Errorf("the original: %+v, %v", r, err)
	}
}

// compacted copies a snapshot to a snapshot with its own memory layer, and returns the layer's
// path.
func (d *daemon) compacted(from, tag string) string {
	d.t.Helper()
	if _, err := d.c.CompactSnapshot(d.t.Context(), from, tag, nil); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := d.c.DeleteSnapshot(context.Background(), tag, client.DeleteOptions{}); err != nil {
			d.t.Errorf("delete it: %v", err)
		}
	})
	b, err := os.ReadFile(filepath.Join(d.store(), tag, snapshot.ManifestFile))
	if err != nil {
		d.t.Fatal(err)
	}
	m, err := snapshot.DecodeManifest(b)
	if err != nil {
		d.t.Fatal(err)
	}
	return filepath.Join(d.store(), "..", "layers", "layers", m.Memory.Layers[0].String())
}

// damageLayer flips one bit of a layer's content, and returns its position.
func damageLayer(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const above = 4 << 20
	at, err := unix.Seek(int(f.Fd()), above, unix.SEEK_DATA)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, path, at+100)
	return at + 100
}

func TestAFileOfTheSnapshotIsMissing(t *testing.T) {
	d := shared(t)
	d.unchanged()
	for _, name := range []string{snapshot.StateFile, snapshot.DiskFile(0), snapshot.ManifestFile} {
		d.sub(name, func(t *testing.T) {
			d.damaged(parentTag, "lacks", func(dir string) {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			})
			d.refused("lacks", "file "+name+" is missing")
			info, err := d.c.Snapshot(t.Context(), "lacks")
			if err != nil || info.Status != api.SnapshotFailed || info.Bootable || info.Warning == nil || !strings.Contains(*info.Warning, name+" is missing") {
				t.Errorf("got %+v, %v", info, err)
			}
		})
	}
}

func TestALayerOfTheSnapshotIsMissing(t *testing.T) {
	d := shared(t)
	d.unchanged()
	layer := d.compacted(parentTag, "lacks")
	if err := os.Rename(layer, layer+".away"); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(layer + ".away")
	d.refused("lacks", "file layers/"+filepath.Base(layer)+" is missing")
	info, err := d.c.Snapshot(t.Context(), "lacks")
	if err != nil || info.Status != api.SnapshotFailed || info.Bootable || info.Warning == nil || !strings.Contains(*info.Warning, "is missing") {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestAFileOfTheSnapshotIsShort(t *testing.T) {
	d := shared(t)
	d.unchanged()
	d.damaged(parentTag, "short", func(dir string) {
		if err := os.Truncate(filepath.Join(dir, snapshot.StateFile), 1000); err != nil {
			t.Fatal(err)
		}
	})
	d.refused("short", "file vmstate has 1000 bytes, want")
}

func TestAnotherFormat(t *testing.T) {
	d := shared(t)
	d.unchanged()
	d.sub("of the manifest", func(t *testing.T) {
		d.damaged(parentTag, "newer", func(dir string) {
			if err := editManifest(dir, func(m map[string]any) { m["format"] = 99 }); err != nil {
				t.Fatal(err)
			}
		})
		d.refused("newer", "manifest.json has format 99, this forkd reads format 2", "use the forkd that wrote it")
	})
	d.sub("of the VM's state", func(t *testing.T) {
		d.damaged(parentTag, "newer", func(dir string) {
			editState(t, dir, func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 7) })
		})
		d.refused("newer", "format version 7, this version reads 2")
	})
}

func TestACPUFeatureThatThisHostLacks(t *testing.T) {
	d := shared(t)
	d.unchanged()
	d.damaged(parentTag, "other-cpu", func(dir string) { editState(t, dir, needBothMakers) })
	d.refused("other-cpu", "this host's CPU lacks features that the snapshot needs: ")
	n := 1
	_, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "other-cpu", N: &n})
	if err == nil || !strings.Contains(err.Error(), "amx_tile") && !strings.Contains(err.Error(), "fma4") {
		t.Errorf("the features are not named: %v", err)
	}
}

// editState changes a VM's state and corrects all checksums.
func editState(t *testing.T, dir string, change func(b []byte)) {
	t.Helper()
	path := filepath.Join(dir, snapshot.StateFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change(b)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := editManifest(dir, func(m map[string]any) { m["state"].(map[string]any)["sha256"] = sum(b) }); err != nil {
		t.Fatal(err)
	}
}

// needBothMakers sets two features in the CPUID table (docs/inside/formats/vmstate.md) that no CPU
// combines: Intel's AMX and AMD's FMA4.
func needBothMakers(b []byte) {
	const header, entry, leaf = 16, 32, 28
	for at := header; at+entry <= len(b); {
		size := int(binary.LittleEndian.Uint32(b[at+20:]))
		data := b[at+entry : at+entry+size]
		if name, _, _ := strings.Cut(string(b[at:at+16]), "\x00"); name == "cpuid" {
			for e := data; len(e) >= leaf; e = e[leaf:] {
				// Function, index, flags, EAX, EBX, ECX, EDX.
				switch function, index := binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:]); {
				case function == 7 && index == 0:
					e[24+3] |= 1 // EDX bit 24, amx_tile
				case function == 0x80000001:
					e[20+2] |= 1 // ECX bit 16, fma4
				}
			}
			binary.LittleEndian.PutUint32(b[at+24:], crc32.Update(crc32.ChecksumIEEE(b[at:at+24]), crc32.IEEETable, data))
		}
		at += entry + size
	}
}

// A snapshot's files are deleted while it is in use. Running sandboxes continue.
func TestDeletedByForceWhileInUse(t *testing.T) {
	d := shared(t)
	d.unchanged()
	d.damaged(parentTag, "doomed", func(string) {})
	n := 2
	sbs := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "doomed", N: &n}).OK()
	if err := d.c.DeleteSnapshot(t.Context(), "doomed", client.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	d.alive(sbs...)
	if err := syscall.Access(filepath.Join(d.store(), "doomed"), 0); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("its files are there: %v", err)
	}
}
