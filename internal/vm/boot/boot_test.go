package boot

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/vm/guestmem"
)

var update = flag.Bool("update", false, "rewrite golden files")

// segment is a program header of a test's kernel.
type segment struct {
	kind          elf.ProgType
	paddr         uint64
	data          []byte
	filesz, memsz uint64 // if 0, of data
	offset        uint64 // if 0, the place of data
}

// kernelFile returns an ELF file.
func kernelFile(entry uint64, segs ...segment) []byte {
	le := binary.LittleEndian
	b := make([]byte, 64+56*len(segs))
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], uint16(elf.ET_EXEC))
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[24:], entry)
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[52:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], uint16(len(segs)))
	le.PutUint16(b[58:], 64)
	for i, s := range segs {
		or := func(v, otherwise uint64) uint64 {
			if v != 0 {
				return v
			}
			return otherwise
		}
		p := b[64+56*i:]
		le.PutUint32(p, uint32(s.kind))
		le.PutUint64(p[8:], or(s.offset, uint64(len(b))))
		le.PutUint64(p[24:], s.paddr)
		le.PutUint64(p[32:], or(s.filesz, uint64(len(s.data))))
		le.PutUint64(p[40:], or(s.memsz, uint64(len(s.data))))
		b = append(b, s.data...)
	}
	return b
}

func load(paddr uint64, data []byte) segment {
	return segment{kind: elf.PT_LOAD, paddr: paddr, data: data}
}

// goodKernel returns a kernel with code at 1 MiB, and data followed by free space at 2 MiB.
func goodKernel() []byte {
	data := load(2<<20, []byte("data"))
	data.memsz = 8192
	return kernelFile(1<<20+4, load(1<<20, []byte("0123code")), data)
}

const testMemory = 16 << 20

func newMemory(t testing.TB, size int64) *guestmem.Map {
	t.Helper()
	m, err := guestmem.Reserve(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.MapAnonymous(); err != nil {
		t.Fatal(err)
	}
	return m
}

func slice(t testing.TB, m *guestmem.Map, gpa uint64, n int) []byte {
	t.Helper()
	b, err := m.Slice(gpa, n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestKernelIsPlaced(t *testing.T) {
	m := newMemory(t, testMemory)
	entry, end, err := loadKernel(m, bytes.NewReader(goodKernel()))
	if err != nil {
		t.Fatal(err)
	}
	if entry != 1<<20+4 || end != 2<<20+8192 {
		t.Errorf("entry %#x and end %#x, want %#x and %#x", entry, end, 1<<20+4, 2<<20+8192)
	}
	if got := slice(t, m, 1<<20, 8); string(got) != "0123code" {
		t.Errorf("first segment holds %q", got)
	}
	if got := slice(t, m, 2<<20, 6); string(got) != "data\x00\x00" {
		t.Errorf("second segment holds %q", got)
	}
}

func TestBadKernelsAreRefused(t *testing.T) {
	change := func(b []byte, at int, to ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], to)
		return b
	}
	big := func(s segment) []byte { return kernelFile(1<<20, load(1<<20, []byte("code")), s) }
	good := goodKernel()
	for _, c := range []struct {
		name string
		file []byte
	}{
		{"empty file", nil},
		{"text", []byte("#!/bin/sh\necho I am no kernel\n")},
		{"Debian's packed kernel", append(make([]byte, 0x202), "HdrS and so on"...)},
		{"zeroes", make([]byte, 4096)},
		{"32-bit", change(good, 4, 1)},
		{"big endian", change(good, 5, 2)},
		{"another machine", change(good, 18, 0xb7)},
		{"shared library", change(good, 16, byte(elf.ET_DYN))},
		{"object file", change(good, 16, byte(elf.ET_REL))},
		{"cut in the file's head", good[:40]},
		{"cut in the program headers", good[:100]},
		{"cut in a segment", good[:len(good)-1]},
		{"without segments", kernelFile(1 << 20)},
		{"with a note only", kernelFile(1<<20, segment{kind: elf.PT_NOTE, paddr: 1 << 20, data: []byte("note")})},
		{"entry below its segments", kernelFile(0x1000, load(1<<20, []byte("code")))},
		{"entry behind its segments", kernelFile(4<<20, load(1<<20, []byte("code")))},
		{"entry at the end of addresses", kernelFile(math.MaxUint64, load(1<<20, []byte("code")))},
		{"segment over the VMM's own tables", big(load(0x7000, []byte("zero page")))},
		{"segment behind memory", big(load(testMemory, []byte("far")))},
		{"segment across the end of memory", big(load(testMemory-2, []byte("far")))},
		{"segment that wraps", big(load(math.MaxUint64-1, []byte("far")))},
		{"segment in the device hole", big(load(MMIOBase, []byte("device")))},
		{"segment larger than memory", big(segment{kind: elf.PT_LOAD, paddr: 2 << 20, data: []byte("x"), memsz: testMemory})},
		{"segment of 2^63 bytes", big(segment{kind: elf.PT_LOAD, paddr: 2 << 20, data: []byte("x"), memsz: 1 << 63})},
		{"segment of 2^64-1 bytes", big(segment{kind: elf.PT_LOAD, paddr: 2 << 20, data: []byte("x"), filesz: math.MaxUint64, memsz: math.MaxUint64})},
		{"more in the file than in memory", big(segment{kind: elf.PT_LOAD, paddr: 2 << 20, data: []byte("12345678"), memsz: 4})},
		{"content outside the file", big(segment{kind: elf.PT_LOAD, paddr: 2 << 20, data: []byte("x"), offset: 1 << 40})},
		{"content before the file", big(segment{kind: elf.PT_LOAD, paddr: 2 << 20, data: []byte("x"), offset: math.MaxUint64 - 4})},
		{"too many segments", kernelFile(1<<20, bytesOf(maxSegments+1)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := loadKernel(newMemory(t, testMemory), bytes.NewReader(c.file)); err == nil {
				t.Fatal("it was loaded")
			} else if len(c.file) > 0 && err.Error() == "" {
				t.Fatal("the error says nothing")
			}
		})
	}
}

func bytesOf(n int) (segs []segment) {
	for i := range n {
		segs = append(segs, load(1<<20+uint64(i)*4096, []byte{1}))
	}
	return segs
}

func TestWhatIsNoKernelIsNamedSo(t *testing.T) {
	_, err := Load(newMemory(t, testMemory), Config{Kernel: strings.NewReader("no kernel at all"), VCPUs: 1})
	if !errors.Is(err, ErrNotKernel) || !strings.Contains(err.Error(), "load kernel") {
		t.Errorf("got %v, want ErrNotKernel", err)
	}
	small := load(1<<20, []byte("code"))
	small.memsz = testMemory - 1<<20 + 1
	if _, _, err := loadKernel(newMemory(t, testMemory), bytes.NewReader(kernelFile(1<<20, small))); err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("a kernel that is too large: %v, want the memory named", err)
	}
}

func TestInitrdIsPlaced(t *testing.T) {
	m := newMemory(t, testMemory)
	rd := bytes.Repeat([]byte("initrd"), 1000)
	if _, err := Load(m, Config{Kernel: bytes.NewReader(goodKernel()), Initrd: bytes.NewReader(rd), InitrdSize: int64(len(rd)), VCPUs: 1}); err != nil {
		t.Fatal(err)
	}
	zp := slice(t, m, bootParamAddr, zeroPageSize)
	at, n := binary.LittleEndian.Uint32(zp[zpRamdiskImage:]), binary.LittleEndian.Uint32(zp[zpRamdiskSize:])
	if at%4096 != 0 || int(n) != len(rd) || !bytes.Equal(slice(t, m, uint64(at), len(rd)), rd) {
		t.Errorf("the guest is told of an initrd of %d bytes at %#x, which is not there", n, at)
	}
}

func TestBadInitrdsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int64
		there  int
		reason string
	}{
		{"empty", 0, 0, "does not fit"},
		{"of negative size", -1, 0, "does not fit"},
		{"larger than memory", testMemory + 1, 0, "does not fit"},
		{"as large as can be", math.MaxInt64, 0, "does not fit"},
		{"over the kernel", testMemory - 2<<20, 0, "do not fit"},
		{"cut short", 8192, 100, "read initramfs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(newMemory(t, testMemory), Config{
				Kernel: bytes.NewReader(goodKernel()), Initrd: bytes.NewReader(make([]byte, c.there)), InitrdSize: c.size, VCPUs: 1,
			})
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("got %v, want %q", err, c.reason)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	m := newMemory(t, testMemory)
	longest := strings.Repeat("x", cmdlineMax-1)
	for _, c := range []struct {
		line string
		ok   bool
	}{{"", true}, {"quiet", true}, {longest, true}, {longest + "x", false}, {strings.Repeat("x", 1<<20), false}} {
		err := writeCmdline(m, c.line)
		if (err == nil) != c.ok {
			t.Errorf("%d bytes: %v", len(c.line), err)
		}
		if c.ok && string(slice(t, m, cmdlineAddr, len(c.line)+1)) != c.line+"\x00" {
			t.Errorf("%d bytes are not where they should be, or have no end", len(c.line))
		}
	}
}

// Places assigned by Load must not overlap: the map is written by hand.
func TestPlacesDoNotOverlap(t *testing.T) {
	places := []struct {
		name  string
		start uint64
		size  uint64
	}{
		{"descriptor table", gdtAddr, uint64(8 * len(gdt))}, {"boot parameters", bootParamAddr, zeroPageSize}, {"stack", bootParamAddr + zeroPageSize, stackAddr - bootParamAddr - zeroPageSize},
		{"page map", pml4Addr, 4096}, {"page directory pointers", pdptAddr, 4096}, {"page directory", pdAddr, 4096},
		{"command line", cmdlineAddr, cmdlineMax}, {"ACPI", acpiStart, acpiEnd - acpiStart}, {"kernel", highRAM, 1 << 20},
		{"devices", MMIOBase, MaxMMIO * MMIOStride}, {"IOAPIC", ioapicAddr, 4096}, {"LAPIC", lapicAddr, 4096}, {"identity map", IdentityMap, 4096}, {"TSS", TSSAddr, 3 * 4096},
	}
	for i, a := range places {
		if a.start+a.size > guestmem.HighStart {
			t.Errorf("%s ends beyond the device hole", a.name)
		}
		for _, b := range places[i+1:] {
			if a.start < b.start+b.size && b.start < a.start+a.size {
				t.Errorf("%s and %s overlap", a.name, b.name)
			}
		}
	}
}

// TestGolden shows the guest's memory below 1 MiB, for memory below and around the hole.
func TestGolden(t *testing.T) {
	for _, mib := range []int64{64, 3072, 5120} {
		t.Run(fmt.Sprintf("%d MiB", mib), func(t *testing.T) {
			m := newMemory(t, mib<<20)
			start, err := Load(m, Config{Kernel: bytes.NewReader(goodKernel()), Cmdline: "console=ttyS0", VCPUs: 2, MMIO: 3, GenID: [16]byte{1, 2, 3}})
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("start %+v\n%s", start, dumpBelow(t, m, highRAM))
			golden(t, fmt.Sprintf("low-%d.txt", mib), got)
		})
	}
}

// dumpBelow returns all non-zero lines of 16 bytes. A run of similar page table entries is
// shortened.
func dumpBelow(t *testing.T, m *guestmem.Map, end int) string {
	t.Helper()
	var out strings.Builder
	low := slice(t, m, 0, end)
	for at := 0; at < end; at += 16 {
		if line := low[at : at+16]; !bytes.Equal(line, make([]byte, 16)) {
			fmt.Fprintf(&out, "%05x %s\n", at, hex.EncodeToString(line))
		}
	}
	return out.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (-update if that is meant)", path)
	}
}

// TestMemoryMap adds up the memory map reported to the guest.
func TestMemoryMap(t *testing.T) {
	for _, mib := range []int64{64, 3072, 3073, 8192} {
		m := newMemory(t, mib<<20)
		var usable, end uint64
		for _, r := range memoryMap(ramRegions(m)) {
			if r.addr < end {
				t.Errorf("%d MiB: %+v lies before the end of the entry in front of it", mib, r)
			}
			end = r.addr + r.size
			if r.kind == e820RAM {
				usable += r.size
				if _, err := m.Slice(r.addr, int(r.size)); err != nil {
					t.Errorf("%d MiB: the guest is told of memory that is not there: %v", mib, err)
				}
			}
		}
		if lost := uint64(mib)<<20 - usable; lost != highRAM-ebdaStart {
			t.Errorf("%d MiB: the guest is told of %d bytes fewer, want %d", mib, lost, highRAM-ebdaStart)
		}
	}
}

// FuzzLoad loads any file as a kernel, either into memory or not at all.
func FuzzLoad(f *testing.F) {
	f.Add(goodKernel())
	f.Add(goodKernel()[:150])
	f.Add([]byte("\x7fELF"))
	f.Add(kernelFile(1<<20, segment{kind: elf.PT_LOAD, paddr: 1 << 20, data: []byte("x"), filesz: 1 << 62, memsz: 1 << 63}))
	m := newMemory(f, 4<<20)
	f.Fuzz(func(t *testing.T, b []byte) {
		entry, end, err := loadKernel(m, bytes.NewReader(b))
		if err == nil && (entry < highRAM || entry >= end || end > 4<<20) {
			t.Fatalf("loaded with entry %#x and end %#x into 4 MiB", entry, end)
		}
	})
}
