package acpi

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

const testBase = 0xe0000

func hardware(cpus, devices int) Hardware {
	hw := Hardware{
		CPUs: cpus, LAPICAddr: 0xfee00000, IOAPICAddr: 0xfec00000, ResetPort: 0x600, ResetValue: 6, SleepControlPort: 0x601, SleepStatusPort: 0x602,
		SerialPort: 0x3f8, SerialIRQ: 4, GenIDAddr: 0xff000, GenIDIRQ: 5,
	}
	for i := range devices {
		hw.VirtIO = append(hw.VirtIO, VirtIO{Addr: uint32(0xd0000000 + i<<12), Size: 4096, IRQ: uint32(6 + i)})
	}
	return hw
}

func build(t *testing.T, hw Hardware) []byte {
	t.Helper()
	b, err := Build(hw, testBase, 0x1f000)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sum(b []byte) (s byte) {
	for _, c := range b {
		s += c
	}
	return s
}

// tables follows the pointers like a kernel and checks every length and checksum.
func tables(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	le := binary.LittleEndian
	at := func(addr uint64) []byte {
		off := addr - testBase
		if addr < testBase || off+headerSize > uint64(len(b)) {
			t.Fatalf("a table is at %#x, outside", addr)
		}
		n := uint64(le.Uint32(b[off+4:]))
		if off%16 != 0 || n < headerSize || off+n > uint64(len(b)) {
			t.Fatalf("a table of %d bytes is at %#x", n, addr)
		}
		if s := sum(b[off : off+n]); s != 0 {
			t.Fatalf("checksum of %q is off by %d", b[off:off+4], s)
		}
		return b[off : off+n]
	}
	if string(b[:8]) != "RSD PTR " || sum(b[:20]) != 0 || sum(b[:rsdpSize]) != 0 || b[15] != 2 {
		t.Fatalf("root pointer is % x", b[:rsdpSize])
	}
	found := map[string][]byte{}
	xsdt := at(le.Uint64(b[24:]))
	for p := xsdt[headerSize:]; len(p) > 0; p = p[8:] {
		table := at(le.Uint64(p))
		found[string(table[:4])] = table
	}
	found["DSDT"] = at(le.Uint64(found["FACP"][140:]))
	return found
}

func TestTablesAreSound(t *testing.T) {
	for cpus := 1; cpus <= 8; cpus++ {
		for devices := range 19 {
			found := tables(t, build(t, hardware(cpus, devices)))
			if n := len(found["FACP"]); n != fadtSize {
				t.Fatalf("FADT has %d bytes, want %d", n, fadtSize)
			}
			if n := bytes.Count(found["DSDT"], []byte("LNRO0005")); n != devices {
				t.Errorf("%d devices are declared, want %d", n, devices)
			}
			if n := bytes.Count(found["DSDT"], []byte("ACPI0007")); n != cpus {
				t.Errorf("%d processors are declared, want %d", n, cpus)
			}
			checkMADT(t, found["APIC"], cpus)
		}
	}
}

func checkMADT(t *testing.T, b []byte, cpus int) {
	t.Helper()
	lapics, ioapics := 0, 0
	for p := b[headerSize+8:]; len(p) > 0; p = p[p[1]:] {
		if len(p) < 2 || int(p[1]) > len(p) || p[1] == 0 {
			t.Fatalf("entry % x of the MADT does not end", p)
		}
		switch p[0] {
		case 0:
			if int(p[3]) != lapics || p[4] != 1 {
				t.Errorf("processor %d has APIC id %d, flags %d", lapics, p[3], p[4])
			}
			lapics++
		case 1:
			ioapics++
		}
	}
	if lapics != cpus || ioapics != 1 {
		t.Errorf("%d processors and %d I/O APICs, want %d and 1", lapics, ioapics, cpus)
	}
}

func TestPackageLength(t *testing.T) {
	for _, n := range []int{0, 1, 61, 62, 63, 64, 100, 4092, 4093, 4094, 4095, 70000} {
		b := pkgLength(make([]byte, n))
		got, prefix := int(b[0]&0x3f), 1+int(b[0]>>6)
		if prefix > 1 {
			got = int(b[0] & 0xf)
			for i := 1; i < prefix; i++ {
				got |= int(b[i]) << (8*i - 4)
			}
		}
		if got != len(b) || len(b) != n+prefix {
			t.Errorf("%d bytes of content: length reads %d of %d, prefix %d", n, got, len(b), prefix)
		}
	}
}

func TestTooMuchForItsPlace(t *testing.T) {
	if _, err := Build(hardware(8, 18), testBase, 1000); err == nil {
		t.Fatal("tables were built that do not fit")
	}
}

func TestGolden(t *testing.T) {
	for _, c := range [][2]int{{1, 2}, {8, 6}} {
		path := filepath.Join("testdata", fmt.Sprintf("cpus-%d-devices-%d.hex", c[0], c[1]))
		got := []byte(hex.Dump(build(t, hardware(c[0], c[1]))))
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("differs from %s: a guest restored from an older snapshot has the older tables in memory (-update if that is meant)", path)
		}
	}
}
