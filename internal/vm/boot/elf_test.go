package boot

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"reflect"
	"testing"
)

// byLibrary returns debug/elf's reading of a file that readELF should accept; ok is false for other
// files.
func byLibrary(b []byte) (entry uint64, programs []programHeader, ok bool) {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil || f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != elf.EM_X86_64 ||
		f.Type != elf.ET_EXEC || len(f.Progs) > maxSegments {
		return 0, nil, false
	}
	for _, p := range f.Progs {
		programs = append(programs, programHeader{uint32(p.Type), p.Off, p.Paddr, p.Filesz, p.Memsz})
	}
	return f.Entry, programs, true
}

// sameAsLibrary compares readELF with debug/elf, which also refuses invalid sections.
func sameAsLibrary(b []byte) error {
	entry, programs, ok := byLibrary(b)
	if !ok {
		return nil
	}
	gotEntry, got, err := readELF(bytes.NewReader(b))
	if err != nil || gotEntry != entry || !reflect.DeepEqual(got, programs) {
		return fmt.Errorf("entry %#x, %v, %v; debug/elf has %#x, %v", gotEntry, got, err, entry, programs)
	}
	return nil
}

func TestHeadersAreThoseOfTheLibrary(t *testing.T) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skipf("no program to read: %v", err)
	}
	for name, b := range map[string][]byte{"kernel": goodKernel(), "many segments": kernelFile(1<<20, bytesOf(maxSegments)...), "this test": program} {
		if err := sameAsLibrary(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, b := range [][]byte{goodKernel(), kernelFile(1<<20, bytesOf(maxSegments)...)} {
		if _, _, ok := byLibrary(b); !ok {
			t.Error("debug/elf does not take the test's kernel: nothing was compared")
		}
	}
}

func TestProgramHeadersMayLieAnywhere(t *testing.T) {
	b := goodKernel()
	for name, c := range map[string]struct {
		at   int
		to   []byte
		want bool
	}{
		"behind the file":         {32, []byte{0, 0, 0, 0, 1}, false},
		"at the end of offsets":   {32, bytes.Repeat([]byte{0xff}, 8), false},
		"at the largest offset":   {32, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, false},
		"too small":               {54, []byte{55, 0}, false},
		"none, of any size":       {54, []byte{0, 0, 0, 0}, true},
		"of a later version":      {6, []byte{2}, false},
		"more than are in memory": {56, []byte{0xff, 0xff}, false},
	} {
		f := bytes.Clone(b)
		copy(f[c.at:], c.to)
		if _, _, err := readELF(bytes.NewReader(f)); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzELF reads any file's headers and compares with debug/elf.
func FuzzELF(f *testing.F) {
	f.Add(goodKernel())
	f.Add(goodKernel()[:150])
	f.Add(kernelFile(1<<20, bytesOf(maxSegments+1)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := sameAsLibrary(b); err != nil {
			t.Fatal(err)
		}
	})
}
