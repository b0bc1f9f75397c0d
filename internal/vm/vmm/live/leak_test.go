package live

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// resources counts the resources that a closed machine must have released.
type resources struct{ files, goroutines, threads, mappings int }

func resourcesNow() resources {
	tasks, _ := os.ReadDir("/proc/self/task")
	maps, _ := os.ReadFile("/proc/self/maps")
	// A machine's mappings are its memory and its vCPUs' run areas. The runtime's own mappings come
	// and go.
	mappings := strings.Count(string(maps), "kvm-vcpu") + strings.Count(string(maps), "/memory")
	return resources{openFiles(), runtime.NumGoroutine(), len(tasks), mappings}
}

// TestClosedMachinesLeaveNothing ends machines in every stage of their life.
func TestClosedMachinesLeaveNothing(t *testing.T) {
	kvmtest.Require(t)
	const vcpus, times = 4, 5
	parent, s := bareSaved(t)
	halting := newScript()
	halting.op(opHalt, 0, 0)
	for _, c := range []struct {
		name string
		life func(t *testing.T)
	}{
		{"shell", func(t *testing.T) { newShell(t, vmspec.Shape{MemoryMiB: 64, VCPUs: vcpus, Disks: 4}) }},
		{"running", func(t *testing.T) { bootBare(t, halting, refusing) }},
		{"paused", func(t *testing.T) { checkOK(t, bootBare(t, halting, refusing).Pause()) }},
		{"ended by itself", func(t *testing.T) {
			off := newScript()
			off.op(opPowerOff, 0, 0)
			bootBare(t, off, nil).waitEnd()
		}},
		{"no kernel", func(t *testing.T) {
			v := newBare(t)
			if err := v.Boot(vmm.BootConfig{Kernel: memoryFile(t, []byte("no kernel")), CID: 3, Disks: v.attachHost(nil)}); err == nil {
				t.Error("it booted")
			}
		}},
		{"too few disks", func(t *testing.T) {
			v := newBare(t)
			disks := v.attachHost(nil)
			disks[1].File.Close()
			if err := v.Boot(vmm.BootConfig{Kernel: memoryFile(t, halting.kernel()), CID: 3, Disks: disks[:1]}); err == nil {
				t.Error("it booted")
			}
		}},
		{"restored", func(t *testing.T) {
			_, err := restoreBare(t, parent, s, false)
			checkOK(t, err)
		}},
		{"restored and paused", func(t *testing.T) {
			_, err := restoreBare(t, parent, s, true)
			checkOK(t, err)
		}},
		{"second boot", func(t *testing.T) {
			v := bootBare(t, halting, nil)
			second := v.openDisks()
			if err := v.Boot(vmm.BootConfig{Kernel: memoryFile(t, halting.kernel()), CID: 3, Disks: second}); err == nil {
				t.Error("it booted twice")
			}
		}},
		{"bad state", func(t *testing.T) {
			if _, err := restoreBare(t, parent, saved{s.memory, s.state[:100]}, false); err == nil {
				t.Error("it was restored")
			}
		}},
		{"no memory to map", func(t *testing.T) {
			if _, err := restoreBare(t, parent, saved{memoryFile(t, nil), s.state}, false); err == nil {
				t.Error("it was restored")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			once := func() { t.Run("", c.life) } // its clean-up closes the machine
			once()
			before := resourcesNow()
			for range times {
				once()
			}
			// Threads of closed vCPUs end a moment after their goroutines.
			deadline := time.Now().Add(bootLimit)
			for now := resourcesNow(); now.files > before.files || now.goroutines > before.goroutines || now.mappings > before.mappings ||
				now.threads >= before.threads+times; now = resourcesNow() {
				if time.Now().After(deadline) {
					t.Fatalf("%d machines later there are %+v, before were %+v", times, now, before)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

func checkOK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCloseTwice(t *testing.T) {
	s := newScript()
	s.finish()
	v := bootBare(t, s, nil)
	v.waitBeat()
	checkOK(t, v.Close())
	checkOK(t, v.Close())
	if err := v.Pause(); err == nil || !strings.Contains(fmt.Sprint(err), "exited") {
		t.Errorf("pause of a closed machine: %v, want its state named", err)
	}
}

// TestUnharmedNeighbours runs a well-behaved guest next to hostile ones and next to one that ends
// in a fault.
func TestUnharmedNeighbours(t *testing.T) {
	s := newScript()
	r := s.device(slotRNG).ring(0, 8)
	from := s.here()
	r.begin(featVersion1)
	r.clear()
	r.put(0, bareBuffers, 64, flagWrite, 0)
	r.tell()
	run(r)
	r.awaitUsed()
	s.op(opLoad32, r.used, 0)
	s.op(opAdd16, bareBeat, 1)
	s.loop(from, 0)
	neighbour := bootBare(t, s, nil)
	neighbour.waitBeat()
	for i := range 3 {
		bad := newScript()
		h := bad.device(slotRNG).ring(0, 8)
		again := bad.here()
		h.begin(featVersion1)
		h.clear()
		h.put(0, ^uint64(0), 0xffffffff, flagWrite, uint16(i))
		h.tell()
		run(h)
		bad.loop(again, 50)
		bad.op(opTripleFault, 0, 0)
		if e := bootBare(t, bad, nil).waitEnd(); e.Kind != "fault" {
			t.Errorf("the hostile guest ended with %+v", e)
		}
		neighbour.waitBeat()
	}
	checkOK(t, neighbour.Pause())
	for _, used := range neighbour.results(int(min(neighbour.word(bareBeat), 1000))) {
		if used>>16 != 1 {
			t.Fatalf("the neighbour's device used %d chains, want 1", used>>16)
		}
	}
}
