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

	"github.com/forkd/forkd/internal/vmspec"
)

// write makes a snapshot of 64 MiB with data at the given offsets of its memory.
func write(t *testing.T, s *Store, tag string, data map[int64]string) {
	t.Helper()
	d, err := s.Create(tag)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Discard()
	mem := file(t, d, MemoryFile)
	if err := mem.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	for at, text := range data {
		if _, err := mem.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file(t, d, StateFile).WriteString("the state"); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	if err := os.WriteFile(root, []byte("a root disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Adopt(DiskFile(0), root); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(flat()); err != nil {
		t.Fatal(err)
	}
}

func file(t *testing.T, d *Draft, name string) *os.File {
	t.Helper()
	f, err := d.File(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// flat is the manifest of a snapshot whose memory is one flat file.
func flat() *Manifest {
	return &Manifest{
		CreatedUnixMS: 1700000000000,
		Image:         &Image{Name: "python-numpy", Digest: "sha256:ab", Kernel: "6.12"},
		Shape:         vmspec.Shape{MemoryMiB: 64, VCPUs: 1, Disks: 1},
		Cmdline:       "console=ttyS0",
		Memory:        []Segment{{File: MemoryFile, Length: 64 << 20}},
		State:         State{File: StateFile},
		Disks:         []Disk{{File: DiskFile(0), ReadOnly: true}},
		Languages:     []string{"python"},
		Agent:         Agent{Version: "0.1"},
		Steps:         []Step{{Name: "boot", TookMS: 1200}},
	}
}

func open(t *testing.T) *Store {
	t.Helper()
	s, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACommittedSnapshotIsFoundAgain(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{5000: "hello"})
	again, err := OpenStore(s.dir)
	if err != nil {
		t.Fatal(err)
	}
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
	b := make([]byte, 5)
	if _, err := f.File(MemoryFile).ReadAt(b, 5000); err != nil || string(b) != "hello" {
		t.Errorf("an open file after the deletion: %q, %v", b, err)
	}
	if _, err := again.Get("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestATagIsTakenByADraftAndByASnapshot(t *testing.T) {
	s := open(t)
	d, err := s.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create("a"); !errors.Is(err, ErrExists) {
		t.Errorf("while it is written: %v", err)
	}
	d.Discard()
	write(t, s, "a", nil)
	if _, err := s.Create("a"); !errors.Is(err, ErrExists) {
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
	s, err := OpenStore(s.dir)
	if err != nil {
		t.Fatal(err)
	}
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
			if !errors.Is(err, ErrTag) {
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
		"memory is missing":       {func(d string) error { return os.Remove(d + "/memory") }, "file memory is missing"},
		"memory is cut short":     {func(d string) error { return os.Truncate(d+"/memory", 4096) }, "file memory has 4096 bytes, want 67108864"},
		"memory is a directory":   {func(d string) error { os.Remove(d + "/memory"); return os.Mkdir(d+"/memory", 0o700) }, "not a regular file"},
		"manifest is missing":     {func(d string) error { return os.Remove(d + "/manifest.json") }, "manifest.json is missing"},
		"manifest is huge":        {func(d string) error { return os.Truncate(d+"/manifest.json", MaxManifestBytes+1) }, "is over"},
		"manifest is no JSON":     {edit(`"format"`, `format`), "manifest.json"},
		"another format version":  {edit(`"format": 1`, `"format": 7`), "has format 7, this forkd reads format 1; use"},
		"a path instead of names": {edit(`"name": "memory"`, `"name": "../x"`), "not a plain name"},
		"another tag":             {edit(`"tag": "a"`, `"tag": "b"`), "is of snapshot b"},
		"memory beyond the guest": {edit(`"offset": 0`, `"offset": 4096`), "ends beyond"},
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
			if !errors.Is(err, ErrNotRestorable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want not restorable with %q", err, c.want)
			}
			l, err := s.List() // does not look at content
			if err != nil || len(l) != 1 || l[0].Err == nil && !strings.Contains(name, "state") {
				t.Errorf("it is not listed as damaged: %+v, %v", l, err)
			}
		})
	}
}

func TestVerifyFindsTheFlippedByte(t *testing.T) {
	for name, c := range map[string]struct {
		file   string
		at     int64
		chunk  int64
		detail string
	}{
		"in data":                {MemoryFile, 5001, 0, "changed"},
		"in a hole":              {MemoryFile, 40 << 20, 40 << 20, "where zeros were"},
		"in the last chunk":      {MemoryFile, 64<<20 - 1, 63 << 20, "changed"},
		"in the state":           {StateFile, 3, 0, "changed"},
		"data replaced by zeros": {MemoryFile, 20 << 20, 20 << 20, "holds zeros"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			write(t, s, "a", map[int64]string{5000: "hello", 20 << 20: "x", 64<<20 - 4: "end!"})
			if _, err := s.Verify(t.Context(), "a"); !errors.Is(err, ErrNoDigests) {
				t.Fatalf("before they are written: %v", err)
			}
			if err := s.Seal(t.Context(), "a", nil); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Verify(t.Context(), "a"); err != nil || len(r.Damaged) != 0 || r.Files != 3 {
				t.Fatalf("before the damage: %+v, %v", r, err)
			}
			flip(t, filepath.Join(s.Dir("a"), c.file), c.at)
			r, err := s.Verify(t.Context(), "a")
			if err != nil || len(r.Damaged) != 1 {
				t.Fatalf("got %+v, %v", r, err)
			}
			d := r.Damaged[0]
			if d.File != c.file || d.Offset != c.chunk || !strings.Contains(d.Detail, c.detail) {
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
	if err := s.Seal(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(s.Dir("a"), DigestFile), 60)
	if _, err := s.Verify(t.Context(), "a"); !errors.Is(err, ErrNotRestorable) || !strings.Contains(err.Error(), "file digests") {
		t.Errorf("got %v", err)
	}
}

func TestSealEndsWithItsContext(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{0: "hello"})
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := s.Seal(ctx, "a", nil); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if s.HasDigests("a") {
		t.Error("there are digests")
	}
}

// A tag that is deleted and given anew while its digests are computed must not
// get those of the snapshot that was: it would be told to be damaged.
func TestDigestsAreOfTheSnapshotThatWasRead(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{0: "one", 8 << 20: "more"})
	chunk := 0
	err := s.Seal(t.Context(), "a", func(context.Context) error {
		if chunk++; chunk == 2 {
			if err := s.Delete("a"); err != nil {
				t.Fatal(err)
			}
			write(t, s, "a", map[int64]string{0: "two"})
		}
		return nil
	})
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want %v", err, ErrNotFound)
	}
	if s.HasDigests("a") {
		t.Error("the new snapshot has the digests of the old one")
	}
	if err := s.Seal(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Verify(t.Context(), "a"); err != nil || len(r.Damaged) > 0 {
		t.Errorf("verify says %+v, %v", r, err)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	golden, err := os.ReadFile("testdata/manifest-v1.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte(`{"format":1,"files":[{"name":"memory","bytes":-1}]}`))
	f.Add([]byte(`{"format":1,"memory":[{"offset":9223372036854771712,"length":4096}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		if err != nil {
			if !errors.Is(err, ErrNotRestorable) {
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
	const path = "testdata/manifest-v1.json"
	m := flat()
	m.Format, m.Tag, m.State.SHA256 = Format, "pyagent", strings.Repeat("ab", 32)
	m.Files = []File{{MemoryFile, 64 << 20}, {StateFile, 20480}, {DiskFile(0), 1 << 20}}
	m.CPUFeatures = []string{"avx2"}
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
