package wire_test

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
)

var update = flag.Bool("update", false, "rewrite golden files")

var examples = []wire.Message{
	{Kind: wire.Spawn, ID: 1, Want: jail.All, Shape: vmspec.Shape{MemoryMiB: 512, VCPUs: 2, Disks: 1}, Prewarm: true,
		Files: wire.Required | wire.Userfaultfd, FileSize: 1 << 40, Seccomp: seccomp.On},
	{Kind: wire.Spawn, ID: 2, Shape: vmspec.Shape{MemoryMiB: vmspec.MaxMemoryMiB, VCPUs: vmspec.MaxVCPUs}, Files: wire.AllFiles, FileSize: 1},
	{Kind: wire.Spawned, ID: 1, PID: 4711},
	{Kind: wire.Failed, ID: 2, Part: jail.Files, Errno: uint32(unix.ENOSYS)},
	{Kind: wire.Failed, ID: 3, Part: jail.Parts, Errno: uint32(unix.EAGAIN)},
	{Kind: wire.Ended, PID: 4711, Status: 9},
	{Kind: wire.Probe, ID: 4},
	{Kind: wire.Spawn, ID: 5, Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: 1}, Files: wire.Required, FileSize: 1,
		Seccomp: seccomp.Trap},
	{Kind: wire.Probed, ID: 4, Errnos: [jail.Parts]uint8{jail.IPC: 1, jail.Scope: 95}},
}

func TestMessagesAreTheBytesOfTheFirstRelease(t *testing.T) {
	var text strings.Builder
	for _, m := range examples {
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, hex.EncodeToString(b[:]))
		if back, err := wire.Decode(b[:]); err != nil || back != m {
			t.Errorf("%+v came back as %+v, %v", m, back, err)
		}
	}
	const file = "testdata/v1.hex"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("messages are\n%swant\n%s", text.String(), want)
	}
}

func TestDecodeRefusesWhatEncodeDoesNotMake(t *testing.T) {
	encoded := func(m wire.Message) [wire.Size]byte {
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	spawn, spawned, failed, ended := encoded(examples[0]), encoded(examples[2]), encoded(examples[3]), encoded(examples[5])
	for name, c := range map[string]struct {
		of [wire.Size]byte
		at int
		to byte
	}{
		"another version":           {spawn, 0, 2},
		"kind 0":                    {spawn, 1, 0},
		"kind 7":                    {spawn, 1, 7},
		"prewarm 2":                 {spawn, 2, 2},
		"a part that there is not":  {spawn, 11, 0x80},
		"no vCPU":                   {spawn, 20, 0},
		"nine vCPUs":                {spawn, 20, 9},
		"five disks":                {spawn, 21, 5},
		"too much memory":           {spawn, 19, 1},
		"no program":                {spawn, 22, 0xfe},
		"unknown descriptors":       {spawn, 23, 0xff},
		"a spawn with a process":    {spawn, 12, 1},
		"a process below 0":         {spawned, 15, 0x80},
		"a spawned with parts":      {spawned, 8, 1},
		"a failure of another part": {failed, 3, 200},
		"a failure without reason":  {failed, 32, 0},
		"an end that answers":       {ended, 4, 1},
		"reserved bytes":            {ended, 63, 1},
	} {
		b := c.of
		b[c.at] = c.to
		if m, err := wire.Decode(b[:]); !errors.Is(err, wire.ErrMessage) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if _, err := wire.Decode(spawn[:63]); !errors.Is(err, wire.ErrMessage) {
		t.Errorf("a short message: %v", err)
	}
	if _, err := (wire.Message{Kind: wire.Probe, PID: 1}).Encode(); !errors.Is(err, wire.ErrMessage) {
		t.Errorf("a probe of a process: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range examples {
		b, _ := m.Encode()
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.Decode(b)
		if err != nil {
			return
		}
		if back, err := m.Encode(); err != nil || string(back[:]) != string(b) {
			t.Errorf("%x came back as %x, %v", b, back, err)
		}
	})
}

func pair(t *testing.T) (a, b *wire.Conn, raw *os.File) {
	t.Helper()
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(theirs.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	raw = os.NewFile(uintptr(fd), "raw")
	if a, err = wire.NewConn(ours); err != nil {
		t.Fatal(err)
	}
	if b, err = wire.NewConn(theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close(); raw.Close() })
	return a, b, raw
}

func null(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestDescriptorsComeAlong(t *testing.T) {
	a, b, raw := pair(t)
	if err := a.Send(examples[2]); !errors.Is(err, wire.ErrMessage) {
		t.Errorf("sent without its descriptor: %v", err)
	}
	if err := a.Send(examples[2], null(t)); err != nil {
		t.Fatal(err)
	}
	m, files, err := b.Receive()
	if err != nil || m != examples[2] || len(files) != 1 {
		t.Fatalf("received %+v, %d files, %v", m, len(files), err)
	}
	unixfd.CloseAll(files)
	a.Close()
	raw.Close()
	if _, _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
}

func TestDescriptorsThatMayNotComeAreRefused(t *testing.T) {
	probe, _ := examples[6].Encode()
	spawn, _ := examples[0].Encode()
	for name, c := range map[string]struct {
		message []byte
		files   int
	}{"with a probe": {probe[:], 1}, "too few": {spawn[:], 3}, "too many": {spawn[:], 9}, "more than there can be": {spawn[:], 40}} {
		a, _, raw := pair(t)
		fds := make([]int, c.files)
		for i := range fds {
			fds[i] = int(null(t).Fd())
		}
		if err := unix.Sendmsg(int(raw.Fd()), c.message, unix.UnixRights(fds...), nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Receive(); !errors.Is(err, wire.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
