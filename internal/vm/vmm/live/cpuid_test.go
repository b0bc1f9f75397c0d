package live

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/kvm"
)

// hostTable is an abbreviated table as KVM reports it on the CPU with that number.
func hostTable(apicID uint32) []kvm.CPUIDEntry {
	const sub = kvm.CPUIDSignificantIndex
	return []kvm.CPUIDEntry{
		{Function: 0, EBX: 0x68747541, ECX: 0x444d4163, EDX: 0x69746e65}, // AuthenticAMD
		{Function: leafFeatures, EAX: 0x00a20f10, EBX: apicID<<24 | 0x00100800, ECX: 1 << 20},
		{Function: leafStructured, Flags: sub, EBX: 1 << 5, ECX: ecxSHSTK | 1<<8, EDX: edxIBT | 1<<4},
		{Function: leafStructured, Index: 1, Flags: sub, EDX: edxIBT},
		{Function: leafTopology, Flags: sub, EDX: apicID},
		{Function: leafXState, Flags: sub, EAX: 7},
		{Function: leafXState, Index: 1, Flags: sub, EAX: 0xf, ECX: xssCET | 1<<8},
		{Function: leafXState, Index: 2, Flags: sub, EAX: 256, EBX: 576},
		{Function: leafXState, Index: 11, Flags: sub, EAX: 16, ECX: 1},
		{Function: leafXState, Index: 12, Flags: sub, EAX: 24, ECX: 1},
		{Function: leafAMDTopology, EAX: apicID, EBX: 1<<8 | apicID/2, ECX: 3},
	}
}

func leafOf(t *testing.T, table []kvm.CPUIDEntry, function, index uint32) kvm.CPUIDEntry {
	t.Helper()
	i := slices.IndexFunc(table, func(e kvm.CPUIDEntry) bool { return e.Function == function && e.Index == index })
	if i < 0 {
		t.Fatalf("leaf %#x.%d is missing", function, index)
	}
	return table[i]
}

func TestTablesMadeOnDifferentCPUsAreEqual(t *testing.T) {
	one, two := guestCPUID(hostTable(0), 2, true), guestCPUID(hostTable(17), 2, true)
	if !slices.Equal(one, two) {
		t.Errorf("on CPU 0 it is %x, on another %x", one, two)
	}
	for id := range 2 {
		table := forVCPU(two, id)
		if e := leafOf(t, table, leafFeatures, 0); e.EBX>>24 != uint32(id) {
			t.Errorf("leaf 1 of vCPU %d has EBX %#x", id, e.EBX)
		}
		if e := leafOf(t, table, leafAMDTopology, 0); e.EAX != uint32(id) || e.EBX != uint32(id) || e.ECX != 0 {
			t.Errorf("leaf 0x8000001e of vCPU %d is %x", id, e)
		}
		for sub := range uint32(3) {
			if e := leafOf(t, table, leafTopology, sub); e.EDX != uint32(id) {
				t.Errorf("leaf 0xb.%d of vCPU %d has EDX %#x", sub, id, e.EDX)
			}
		}
	}
}

// Checks the same for the kernel's own tables.
func TestShellsMadeOnDifferentCPUsAreEqual(t *testing.T) {
	kvmtest.Require(t)
	var tables [][]kvm.CPUIDEntry
	for cpu := range min(2, runtime.NumCPU()) {
		pinned := make(chan []kvm.CPUIDEntry)
		go func() {
			defer close(pinned)
			runtime.LockOSThread() // never unlocked: the thread ends with its affinity
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Error(err)
				return
			}
			pinned <- newShell(t, shape(64, 2)).cpus.cpuid
		}()
		tables = append(tables, <-pinned)
	}
	if len(tables) < 2 {
		t.Fatal("this test needs two CPUs")
	}
	if !slices.Equal(tables[0], tables[1]) {
		t.Errorf("on CPU 0 it is %x, on CPU 1 %x", tables[0], tables[1])
	}
}

func TestWhatIsNotSavedIsNotOffered(t *testing.T) {
	table := guestCPUID(hostTable(0), 1, true)
	if e := leafOf(t, table, leafStructured, 0); e.ECX != 1<<8 || e.EDX != 1<<4 {
		t.Errorf("leaf 7 is %x: shadow stacks or branch tracking are offered, or more is gone", e)
	}
	if e := leafOf(t, table, leafStructured, 1); e.EDX != edxIBT {
		t.Errorf("leaf 7.1 has other bits, and they were changed: %x", e)
	}
	if e := leafOf(t, table, leafXState, 1); e.ECX != 1<<8 {
		t.Errorf("leaf 0xd.1 is %x", e)
	}
	for _, sub := range []uint32{11, 12} {
		if e := leafOf(t, table, leafXState, sub); e.EAX|e.EBX|e.ECX|e.EDX != 0 {
			t.Errorf("leaf 0xd.%d is %x", sub, e)
		}
	}
	if e := leafOf(t, table, leafXState, 2); e.EAX != 256 {
		t.Errorf("leaf 0xd.2 is %x", e)
	}
}

// Checks that only guests on an emulated CPU end each interrupt with an exit.
func TestEOIWithoutAnExit(t *testing.T) {
	for signature, want := range map[uint32]uint32{
		0x00000663: kvmFeatures &^ pvEOI, // QEMU's max
		0x00a20f10: kvmFeatures,          // Zen 3
		0x00800f12: kvmFeatures,          // Zen 1
	} {
		host := append(hostTable(0), kvm.CPUIDEntry{Function: leafKVM, EAX: 0xffffffff})
		host[1].EAX = signature
		if e := leafOf(t, guestCPUID(host, 1, true), leafKVM, 0); e.EAX != want {
			t.Errorf("with signature %#x the features are %#x, want %#x", signature, e.EAX, want)
		}
	}
	intel := append(hostTable(0), kvm.CPUIDEntry{Function: leafKVM, EAX: 0xffffffff})
	intel[0] = kvm.CPUIDEntry{EBX: 0x756e6547, EDX: 0x49656e69, ECX: 0x6c65746e} // GenuineIntel
	intel[1].EAX = 0x000906ea
	if e := leafOf(t, guestCPUID(intel, 1, true), leafKVM, 0); e.EAX != kvmFeatures {
		t.Errorf("on Intel's family 6 the features are %#x", e.EAX)
	}
}

// Checks the recognition of an emulated CPU against the kernel's own name of the CPU.
func TestEOIOnThisHost(t *testing.T) {
	kvmtest.Require(t)
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	emulated := strings.Contains(string(info), "QEMU TCG")
	offered := leafOf(t, newShell(t, shape(64, 1)).cpus.cpuid, leafKVM, 0).EAX&pvEOI != 0
	if emulated && offered {
		t.Error("guests on an emulated CPU are offered an EOI without an exit")
	}
}

func TestACPUStandsInForAnother(t *testing.T) {
	edit := func(change func(e *kvm.CPUIDEntry)) []kvm.CPUIDEntry {
		table := guestCPUID(hostTable(0), 1, true)
		for i := range table {
			change(&table[i])
		}
		return table
	}
	host := edit(func(*kvm.CPUIDEntry) {})
	for name, c := range map[string]struct {
		change func(e *kvm.CPUIDEntry)
		want   []string // expected in the error; if empty, the restore is allowed
	}{
		"the same": {func(*kvm.CPUIDEntry) {}, nil},
		"another model of the same maker": {func(e *kvm.CPUIDEntry) {
			if e.Function == leafFeatures {
				e.EAX = 0x00870f10
			}
		}, nil},
		"another maker": {func(e *kvm.CPUIDEntry) {
			if e.Function == 0 {
				e.EBX, e.EDX, e.ECX = 0x756e6547, 0x49656e69, 0x6c65746e
			}
			if e.Function == leafFeatures {
				e.EAX = 0x000906ea
			}
		}, []string{`"GenuineIntel"`, `"AuthenticAMD"`, "family 6 model 158 stepping 10", "family 25 model 33 stepping 0"}},
		"a maker of unprintable bytes": {func(e *kvm.CPUIDEntry) {
			if e.Function == 0 {
				e.EBX = 0x1b5b334a
			}
		}, []string{`"J3[?enticAMD"`}},
		"a feature more": {func(e *kvm.CPUIDEntry) {
			if e.Function == leafStructured && e.Index == 0 {
				e.EBX |= 1 << 16
			}
		}, []string{"lacks features", "avx512f"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkCPU(edit(c.change), host)
			if len(c.want) == 0 && err != nil {
				t.Errorf("refused: %v", err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %s", err, want)
				}
			}
		})
	}
	if err := checkCPU(nil, host); err == nil || !strings.Contains(err.Error(), `""`) {
		t.Errorf("a table without leaves: %v", err)
	}
}
