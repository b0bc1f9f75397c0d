package live

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/serial"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// section is part of a saved state.
type section struct {
	name    string
	version uint32
	data    []byte
}

// sections splits a state into its sections.
func sections(t *testing.T, state []byte, s vmspec.Shape) (out []section) {
	t.Helper()
	st, err := vmstate.Decode(state)
	if err != nil {
		t.Fatal(err)
	}
	take := func(name string, version uint32) {
		b, err := st.Section(name, version)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, section{name, version, bytes.Clone(b)})
	}
	take(secShape, shapeVersion)
	take(secCPUID, cpuid.Version)
	take(secClock, clockVersion)
	take(secTSC, tscVersion)
	take(secIOAPIC, ioapicVersion)
	take(secSerial, serial.StateVersion)
	for i := range slotQueues(s) {
		take(secVirtio(i), virtioVersion)
	}
	for i := range s.VCPUs {
		take(secVCPU(i), vcpuVersion)
	}
	return out
}

// assemble joins sections, with correct checksums.
func assemble(all []section) []byte {
	var w vmstate.Writer
	for _, s := range all {
		w.Add(s.name, s.version, s.data)
	}
	return w.Bytes()
}

// bareSaved returns a saved bare guest that has used every device.
func bareSaved(t *testing.T) (*bareVM, saved) {
	t.Helper()
	s := newScript()
	for slot := range slotBalloon + 1 {
		w := s.device(slot)
		w.begin(featVersion1)
		for q := range slotQueues(vmspec.Shape{Disks: bareDisks})[slot] {
			r := w.ring(q, 8)
			r.clear()
			r.tell()
		}
		w.write(regStatus, statusDriverOK)
	}
	s.finish()
	v := bootBare(t, s, nil)
	v.waitMark()
	return v, v.save()
}

// restoreBare loads any state into a new shell.
func restoreBare(t *testing.T, like *bareVM, s saved, prepare bool) (*bareVM, error) {
	t.Helper()
	v := newBare(t)
	v.disks = like.disks
	c := s.blueprint(t, v.Machine, 3, v.attachHost(nil)...)
	c.Prepare = prepare
	_, err := v.Restore(c)
	return v, err
}

// withFeature sets a bit of a CPUID leaf in a state's table.
func withFeature(all []section, leaf, sub uint32, word, bit int) []section {
	all = slices.Clone(all)
	for i := range all {
		if all[i].name != secCPUID {
			continue
		}
		b := bytes.Clone(all[i].data)
		const entry = 28
		for at := 0; at < len(b); at += entry {
			if binary.LittleEndian.Uint32(b[at:]) == leaf && binary.LittleEndian.Uint32(b[at+4:]) == sub {
				reg := b[at+12+4*word:]
				binary.LittleEndian.PutUint32(reg, binary.LittleEndian.Uint32(reg)|1<<bit)
			}
		}
		all[i].data = b
	}
	return all
}

func TestMissingFeaturesAreNamed(t *testing.T) {
	v, s := bareSaved(t)
	all := sections(t, s.state, v.shape)
	const ecx, edx = 2, 3
	for _, c := range []struct {
		leaf, sub uint32
		word, bit int
		want      string
	}{
		{7, 0, edx, 24, "amx_tile"},
		{7, 0, edx, 23, "avx512_fp16"},
		{0x80000001, 0, ecx, 11, "xop"},
		{7, 0, edx, 13, "cpuid 0x7.0 edx bit 13"}, // it has no name
	} {
		_, err := restoreBare(t, v, saved{s.memory, assemble(withFeature(all, c.leaf, c.sub, c.word, c.bit))}, true)
		if err == nil || !strings.Contains(err.Error(), "lacks features") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a state that needs %s: %v, want a refusal that names it", c.want, err)
		}
	}
	_, err := restoreBare(t, v, saved{s.memory, assemble(withFeature(withFeature(all, 7, 0, edx, 24), 0x80000001, 0, ecx, 11))}, true)
	if err == nil || !strings.Contains(err.Error(), "amx_tile, xop") {
		t.Errorf("a state that needs two: %v, want both named", err)
	}
}

// withVendor changes a state's table to another maker's CPU.
func withVendor(all []section, vendor string) []section {
	all = slices.Clone(all)
	for i := range all {
		if all[i].name != secCPUID {
			continue
		}
		table, _ := cpuid.Decode(all[i].data)
		for j := range table {
			if e := &table[j]; e.Function == 0 {
				e.EBX, e.EDX, e.ECX = binary.LittleEndian.Uint32([]byte(vendor)), binary.LittleEndian.Uint32([]byte(vendor[4:])), binary.LittleEndian.Uint32([]byte(vendor[8:]))
			}
		}
		all[i].data = cpuid.Encode(table)
	}
	return all
}

func TestAStateOfAnotherMakersCPUIsRefused(t *testing.T) {
	v, s := bareSaved(t)
	here := cpuid.Vendor(v.cpus.cpuid)
	_, err := restoreBare(t, v, saved{s.memory, assemble(withVendor(sections(t, s.state, v.shape), "Shanghai    "))}, true)
	if err == nil || !strings.Contains(err.Error(), `"Shanghai    "`) || !strings.Contains(err.Error(), here) {
		t.Errorf("got %v, want a refusal that names both makers (%s here)", err, here)
	}
}

func TestMissingSectionsAreNamed(t *testing.T) {
	v, s := bareSaved(t)
	all := sections(t, s.state, v.shape)
	for i, gone := range all {
		t.Run(gone.name, func(t *testing.T) {
			_, err := restoreBare(t, v, saved{s.memory, assemble(slices.Delete(slices.Clone(all), i, i+1))}, true)
			if gone.name == secVirtio(slotNet) || gone.name == secVirtio(slotBalloon) { // as in older states
				checkOK(t, err)
			} else if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", gone.name)) {
				t.Errorf("without it: %v, want an error that names it", err)
			}
			other := slices.Clone(all)
			other[i].version++
			if _, err := restoreBare(t, v, saved{s.memory, assemble(other)}, true); err == nil || !strings.Contains(err.Error(), "version") {
				t.Errorf("another version: %v, want an error about the version", err)
			}
			other = slices.Clone(all)
			other[i].data = other[i].data[:len(other[i].data)/2]
			if _, err := restoreBare(t, v, saved{s.memory, assemble(other)}, true); err == nil {
				t.Error("half of it was restored")
			}
		})
	}
}

// TestGarbageStatesAreSurvived runs machines from states with correct checksums and corrupt
// content. They are refused, or only the guest fails.
func TestGarbageStatesAreSurvived(t *testing.T) {
	v, s := bareSaved(t)
	all := sections(t, s.state, v.shape)
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		bad := slices.Clone(all)
		i := 1 + rnd.IntN(len(bad)-1) // another test covers the shape
		data := bytes.Clone(bad[i].data)
		for range 1 + rnd.IntN(20) {
			at := rnd.IntN(len(data))
			if n := len(data) - at; rnd.IntN(4) == 0 && n >= 8 {
				binary.LittleEndian.PutUint64(data[at:], pick(randomDriver{rnd: rnd}, rnd.Uint64(), ^uint64(0), bareEnd, 0))
			} else {
				data[at] ^= byte(1 << rnd.IntN(8))
			}
		}
		bad[i].data = data
		t.Run(fmt.Sprintf("seed %d in %s", seed, bad[i].name), func(t *testing.T) {
			child, err := restoreBare(t, v, saved{s.memory, assemble(bad)}, false)
			if err != nil {
				t.Log(err)
				return
			}
			time.Sleep(20 * time.Millisecond) // elapses: the guest runs on what was tampered with
			inTime(t, "pause", func() error {
				if err := child.Pause(); err == nil {
					_, err = child.SaveState()
					return err
				}
				return nil // it has ended
			})
		})
	}
}

func TestMemoryFileCutShortIsRefused(t *testing.T) {
	v, s := bareSaved(t)
	if err := s.memory.Truncate(bareEnd - 1); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreBare(t, v, s, true); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("got %v, want a refusal", err)
	}
}
