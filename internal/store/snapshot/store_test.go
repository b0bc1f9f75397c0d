package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
)

func TestACommittedSnapshotIsFoundAgain(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{5000: "hello"})
	again := reopen(t, s.root())
	e, err := again.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	if e.Manifest.Languages[0] != "python" || !strings.HasPrefix(e.ContentHash, "sha256:") {
		t.Errorf("got %+v", e)
	}
	f, err := again.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := again.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := again.layers.GC(false); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := f.Memory.ReadAt(b, 5000); err != nil || string(b) != "hello" {
		t.Errorf("open memory after the deletion: %q, %v", b, err)
	}
	if _, err := again.Get("a"); !errors.Is(err, storeerr.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestATagIsTakenByADraftAndByASnapshot(t *testing.T) {
	s := open(t)
	d, err := s.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create("a"); !errors.Is(err, storeerr.ErrExists) {
		t.Errorf("while it is written: %v", err)
	}
	d.Discard()
	write(t, s, "a", nil)
	if _, err := s.Create("a"); !errors.Is(err, storeerr.ErrExists) {
		t.Errorf("when it is there: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, ".*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestAnInterruptedWriteIsSwept(t *testing.T) {
	s := open(t)
	if _, err := s.Create("half"); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s.root())
	if left, _ := os.ReadDir(s.dir); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestTagsThatAreNone(t *testing.T) {
	s := open(t)
	for _, tag := range []string{"", ".", "..", "a/b", "../a", "a b", "ä", strings.Repeat("x", 65), "a\n"} {
		for what, err := range map[string]error{
			"create": second(s.Create(tag)), "get": second(s.Get(tag)), "open": second(s.Open(tag)),
			"delete": s.Delete(tag), "verify": second(s.Verify(t.Context(), tag)),
		} {
			if !errors.Is(err, storeerr.ErrTag) {
				t.Errorf("%s %q: %v", what, tag, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestADamagedSnapshotIsRefusedWithTheFilesName(t *testing.T) {
	edit := func(old, new string) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, ManifestFile)
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			changed := bytes.Replace(b, []byte(old), []byte(new), 1)
			if bytes.Equal(changed, b) {
				return errors.New("nothing to replace: " + old)
			}
			return os.WriteFile(path, changed, 0o600)
		}
	}
	for name, c := range map[string]struct {
		break_ func(dir string) error
		want   string
	}{
		"a disk is missing":       {func(d string) error { return os.Remove(d + "/disk0") }, "file disk0 is missing"},
		"a disk is cut short":     {func(d string) error { return os.Truncate(d+"/disk0", 5) }, "file disk0 has 5 bytes, want 11"},
		"a disk is a directory":   {func(d string) error { os.Remove(d + "/disk0"); return os.Mkdir(d+"/disk0", 0o700) }, "not a regular file"},
		"a layer is missing":      {func(d string) error { return os.Remove(theLayer(d)) }, "is missing"},
		"manifest is missing":     {func(d string) error { return os.Remove(d + "/manifest.json") }, "manifest.json is missing"},
		"manifest is huge":        {func(d string) error { return os.Truncate(d+"/manifest.json", MaxManifestBytes+1) }, "is over"},
		"manifest is no JSON":     {edit(`"format"`, `format`), "manifest.json"},
		"another format version":  {edit(`"format": 2`, `"format": 7`), "has format 7, this forkd reads format 2; use"},
		"the format before":       {edit(`"format": 2`, `"format": 1`), "recreate it from its image"},
		"a CPU's escape codes":    {edit(`"format": 2`, `"cpu": {"vendor": "\u001b[31m"}, "format": 2`), "printable"},
		"a feature of a page":     {edit(`"format": 2`, `"cpu_features": ["`+strings.Repeat("x", 4096)+`"], "format": 2`), "printable"},
		"too many features":       {edit(`"format": 2`, `"cpu_features": [`+strings.Repeat(`"x",`, 2000)+`"x"], "format": 2`), "2001 features"},
		"a path instead of names": {edit(`"name": "vmstate"`, `"name": "../x"`), "not a plain name"},
		"another tag":             {edit(`"tag": "a"`, `"tag": "b"`), "is of snapshot b"},
		"memory of another size":  {edit(`"memory_mib": 64`, `"memory_mib": 128`), "layers are 67108864 bytes of memory, want 134217728"},
		"memory of no layers":     {edit(`"layers"`, `"others"`), "memory: 0 layers, want 1 to 64"},
		"more own than there are": {edit(`"own": 1`, `"own": 2`), "2 of its 1 layers"},
		"the state is changed":    {func(d string) error { return os.WriteFile(d+"/vmstate", []byte("the stale"), 0o600) }, "file vmstate changed"},
		"an impossible shape":     {edit(`"vcpus": 1`, `"vcpus": 99`), "vcpus is 99"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			write(t, s, "a", nil)
			if err := c.break_(s.Dir("a")); err != nil {
				t.Fatal(err)
			}
			_, err := s.Open("a")
			if !errors.Is(err, storeerr.ErrNotRestorable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want not restorable with %q", err, c.want)
			}
			l, err := s.List() // does not check the content
			content := strings.Contains(name, "state") || strings.Contains(name, "of another size")
			if err != nil || len(l) != 1 || l[0].Err == nil && !content {
				t.Errorf("it is not listed as damaged: %+v, %v", l, err)
			}
		})
	}
}

// theLayer returns the file of the only layer in the store.
func theLayer(dir string) string {
	found, _ := filepath.Glob(filepath.Join(dir, "../../layers/layers", strings.Repeat("?", 32)))
	return found[0]
}

func TestVerifyFindsTheFlippedByte(t *testing.T) {
	inLayer := func(dir string, at int64) (string, int64) { return theLayer(dir), layer.ContentOffset + at }
	inFile := func(name string) func(string, int64) (string, int64) {
		return func(dir string, at int64) (string, int64) { return filepath.Join(dir, name), at }
	}
	for name, c := range map[string]struct {
		where  func(dir string, at int64) (path string, offset int64)
		at     int64
		file   string
		offset int64
		detail string
	}{
		"in data":                {inLayer, 5001, "layers/", layer.ContentOffset, "changed"},
		"in a hole":              {inLayer, 40 << 20, "layers/", layer.ContentOffset + 40<<20, "changed"},
		"in the last chunk":      {inLayer, 64<<20 - 1, "layers/", layer.ContentOffset + 64<<20 - layer.ChunkBytes, "changed"},
		"data replaced by zeros": {inLayer, 20 << 20, "layers/", layer.ContentOffset + 20<<20, "changed"},
		"in the state":           {inFile(StateFile), 3, StateFile, 0, "changed"},
		"in a disk":              {inFile(DiskFile(0)), 3, DiskFile(0), 0, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			write(t, s, "a", map[int64]string{5000: "hello", 20 << 20: "x", 64<<20 - 4: "end!"})
			if _, err := s.Verify(t.Context(), "a"); !errors.Is(err, storeerr.ErrNoDigests) {
				t.Fatalf("before they are written: %v", err)
			}
			must(t, s.Hash(t.Context(), "a", nil))
			if r, err := s.Verify(t.Context(), "a"); err != nil || len(r.Damaged) != 0 || r.Files != 3 {
				t.Fatalf("before the damage: %+v, %v", r, err)
			}
			path, at := c.where(s.Dir("a"), c.at)
			flip(t, path, at)
			r, err := s.Verify(t.Context(), "a")
			if err != nil || len(r.Damaged) != 1 {
				t.Fatalf("got %+v, %v", r, err)
			}
			d := r.Damaged[0]
			if !strings.HasPrefix(d.File, c.file) || d.Offset != c.offset || !strings.Contains(d.Detail, c.detail) {
				t.Errorf("got %+v, want %+v", d, c)
			}
		})
	}
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	if b[0] == 'x' {
		b[0] = 0 // the chunk's only byte of data
	} else {
		b[0] ^= 0x40
	}
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedDigestsAreTold(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{0: "hello"})
	if err := s.Hash(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(s.Dir("a"), DigestFile), 60)
	if _, err := s.Verify(t.Context(), "a"); !errors.Is(err, storeerr.ErrNotRestorable) || !strings.Contains(err.Error(), "file digests") {
		t.Errorf("got %v", err)
	}
}

func TestHashEndsWithItsContext(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{0: "hello"})
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := s.Hash(ctx, "a", nil); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if hasDigests(s, "a") {
		t.Error("there are digests")
	}
}

func hasDigests(s *Store, tag string) bool {
	e, err := s.Get(tag)
	return err == nil && s.HasDigests(e)
}

// A store that was copied without the layers' digests gets them again.
func TestDigestsOfLayersAreMissed(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{0: "hello"})
	must(t, s.Hash(t.Context(), "a", nil))
	if !hasDigests(s, "a") {
		t.Error("the digests are not there")
	}
	files, err := filepath.Glob(filepath.Join(s.root(), "layers", "layers", "*digest*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("digests of layers are %q, %v", files, err)
	}
	must(t, os.Remove(files[0]))
	if _, err := s.Verify(t.Context(), "a"); hasDigests(s, "a") || !errors.Is(err, storeerr.ErrNoDigests) {
		t.Errorf("without the layer's they are said to be there: %v", err)
	}
	must(t, s.Hash(t.Context(), "a", nil))
	if r, err := s.Verify(t.Context(), "a"); err != nil || len(r.Damaged) > 0 {
		t.Errorf("made again: %+v, %v", r, err)
	}
}

// If a tag is deleted and reused while its digests are computed, the new snapshot must not get the digests of the
// old one, which would make it look damaged.
func TestDigestsAreOfTheSnapshotThatWasRead(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{0: "one", 8 << 20: "more"})
	chunk := 0
	err := s.Hash(t.Context(), "a", func(context.Context) error {
		if chunk++; chunk == 2 {
			if err := s.Delete("a"); err != nil {
				t.Fatal(err)
			}
			write(t, s, "a", map[int64]string{0: "two"})
		}
		return nil
	})
	if !errors.Is(err, storeerr.ErrNotFound) {
		t.Errorf("got %v, want %v", err, storeerr.ErrNotFound)
	}
	if hasDigests(s, "a") {
		t.Error("the new snapshot has the digests of the old one")
	}
	if err := s.Hash(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Verify(t.Context(), "a"); err != nil || len(r.Damaged) > 0 {
		t.Errorf("verify says %+v, %v", r, err)
	}
}

// If a tag is reused while its files are being opened, or later, one of the two snapshots is verified. Bytes of
// one with digests of the other, or collected layers, would look like damage.
func TestASnapshotThatIsReplacedMeanwhileIsNotDamaged(t *testing.T) {
	for _, at := range []string{ManifestFile, StateFile, DiskFile(0), DigestFile, layersOpened, contentRead} {
		t.Run(at, func(t *testing.T) {
			s := open(t)
			write(t, s, "a", map[int64]string{0: "one"})
			must(t, s.Hash(t.Context(), "a", nil))
			times := 0
			s.opening = func(name string) {
				if name == at && times == 0 {
					times++
					replace(t, s, "a")
				}
			}
			if r, err := s.Verify(t.Context(), "a"); err != nil || len(r.Damaged) > 0 || r.Files != 3 {
				t.Errorf("verify says %+v, %v", r, err)
			}
			if times != 1 {
				t.Error("it was not replaced")
			}
		})
	}
}

// If the snapshot is only deleted, it is reported as missing.
func TestASnapshotThatIsDeletedWhileItIsOpenedIsNotFound(t *testing.T) {
	s := open(t)
	for _, at := range []string{ManifestFile, StateFile, DiskFile(0), DigestFile, layersOpened} {
		for what, look := range map[string]func() error{
			"verify": func() error { return second(s.Verify(t.Context(), "a")) },
			"open":   func() error { return second(s.Open("a")) },
			"get":    func() error { return second(s.Get("a")) },
		} {
			write(t, s, "a", nil)
			must(t, s.Hash(t.Context(), "a", nil))
			gone := false
			s.opening = func(name string) {
				if name == at && !gone {
					gone = true
					must(t, s.Delete("a"))
					_, err := s.layers.GC(false)
					must(t, err)
				}
			}
			if err := look(); gone && !errors.Is(err, storeerr.ErrNotFound) {
				t.Errorf("%s, deleted at %s: %v", what, at, err)
			}
			s.opening = nil
			if !gone {
				must(t, s.Delete("a"))
			}
		}
	}
}

// replace reuses a tag for another snapshot with files of the same sizes.
func replace(t *testing.T, s *Store, tag string) {
	t.Helper()
	must(t, s.Delete(tag))
	_, err := s.layers.GC(false)
	must(t, err)
	d, err := s.Create(tag)
	must(t, err)
	defer d.Discard()
	for name, text := range map[string]string{StateFile: "THE STATE", DiskFile(0): "A ROOT DISK"} {
		_, err := file(t, d, name).WriteString(text)
		must(t, err)
	}
	must(t, d.Commit(manifest(base(t, d, map[int64]string{0: "two"}))))
	must(t, s.Hash(t.Context(), tag, nil))
}

func FuzzDecodeManifest(f *testing.F) {
	golden, err := os.ReadFile("testdata/manifest-v2.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte(`{"format":2,"files":[{"name":"vmstate","bytes":-1}]}`))
	f.Add([]byte(`{"format":2,"memory":{"layers":["00000000000000000000000000000000"],"own":-1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		if err != nil {
			if !errors.Is(err, storeerr.ErrNotRestorable) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		if _, err := m.Encode(); err != nil {
			t.Errorf("decoded but not encodable: %v", err)
		}
	})
}

func FuzzParseDigests(f *testing.F) {
	f.Add([]byte("forkd-digests 1 sha256 1048576\nfile memory 0\nend 00\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseDigests(b)
	})
}

var update = flag.Bool("update", false, "write the golden files anew")

func TestGoldenManifest(t *testing.T) {
	const path = "testdata/manifest-v2.json"
	id := layer.ID{0: 0xb0, 15: 1}
	m := manifest(Chain{Layers: []layer.ID{id, {0: 0xd1, 15: 2}}, Own: 1})
	m.Shape.Disks = 2
	m.Disks = append(m.Disks, Disk{Bytes: 4 << 30, Chain: Chain{Layers: []layer.ID{{0: 0xd2, 15: 3}}, Own: 1}})
	m.Format, m.Tag, m.State.SHA256 = Format, "pyagent", strings.Repeat("ab", 32)
	m.Files = []File{{StateFile, 20480}, {DiskFile(0), 1 << 20}}
	m.CPU, m.CPUFeatures = &CPU{Vendor: "AuthenticAMD", Family: 25, Model: 33}, []string{"avx2"}
	m.Parent = &Parent{Tag: "base", ContentHash: "sha256:cd"}
	m.Branch = &Branch{Sandbox: "sb-1-0001", Mode: "live", Mechanism: "wp-async", PauseUS: 4100, Rounds: 3, Bytes: 8192, PausedBytes: 4096}
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("the format changed; raise Format or write %s anew with -update\n%s", path, b)
	}
	back, err := DecodeManifest(want)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(back)
	y, _ := json.Marshal(m)
	if !bytes.Equal(x, y) {
		t.Errorf("read back: %s", x)
	}
}

// A retired snapshot has no tag. It is found by its content hash until it is dropped.
func TestARetiredSnapshot(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{0: "memory"})
	e, err := s.Get("a")
	must(t, err)
	if err := s.Retire("a", "sha256:"+strings.Repeat("0", 64)); !errors.Is(err, storeerr.ErrNotFound) {
		t.Errorf("retire another: %v", err)
	}
	if err := s.Retire("a", "../../a"); err == nil {
		t.Error("a path is a content hash")
	}
	unset := failpoint.Set(func(step failpoint.Step) error {
		if step == failpoint.SnapshotPrefix+"retire.rename" {
			return errors.New("no more")
		}
		return nil
	})
	defer unset()
	if err := s.Retire("a", e.ContentHash); err == nil {
		t.Error("it was retired in spite of an error")
	}
	unset()
	s, err = OpenStore(s.dir, s.layers)
	must(t, err)
	if pins, err := s.layers.Pins(); err != nil || len(pins) != 1 {
		t.Errorf("after half of it the next one finds pins %v, %v", pins, err)
	}
	must(t, s.Retire("a", e.ContentHash))
	write(t, s, "a", map[int64]string{0: "other"})
	s, err = OpenStore(s.dir, s.layers)
	must(t, err)
	if _, err := s.layers.GC(false); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].ContentHash == e.ContentHash {
		t.Errorf("listed are %+v, %v", list, err)
	}
	f, err := s.OpenRetired(e.ContentHash)
	must(t, err)
	b := make([]byte, 6)
	if _, err := f.Memory.ReadAt(b, 0); err != nil || string(b) != "memory" || f.Manifest.Tag != "a" {
		t.Errorf("got %q of %s, %v", b, f.Manifest.Tag, err)
	}
	f.Close()
	retired, err := s.ListRetired()
	if err != nil || len(retired) != 1 || retired[0].ContentHash != e.ContentHash || retired[0].Err != nil {
		t.Errorf("retired are %+v, %v", retired, err)
	}
	must(t, s.Drop(e.ContentHash))
	must(t, s.Drop(e.ContentHash))
	if _, err := s.OpenRetired(e.ContentHash); !errors.Is(err, storeerr.ErrNotFound) {
		t.Errorf("after the drop: %v", err)
	}
	must(t, s.Delete("a"))
	if _, err := s.layers.GC(false); err != nil || len(layersOf(t, s)) != 0 {
		t.Errorf("layers are left: %v", err)
	}
}
