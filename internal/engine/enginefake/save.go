package enginefake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/cut/cuttest"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Capture writes the guest's written pages to the files.
func (f *fake) Capture(r vmm.CaptureConfig) (res vmm.CaptureResult, err error) {
	if f.faulty("keep-files") {
		if err := keep(f, r.Memory, r.State, r.Index); err != nil {
			return res, err
		}
	}
	defer func() {
		for _, file := range []*os.File{r.Memory, r.State, r.Index, r.Digest, r.Cut} {
			file.Close()
		}
	}()
	disks := f.Status().Health
	switch {
	case f.faulty("capture-hang"):
		time.Sleep(time.Hour)
	case disks.Full != "" || f.faulty("capture-full"):
		return res, fmt.Errorf("%w: disk 1: write: no space left on device", vmm.ErrNoRoom)
	case (disks.Lost != "" || f.faulty("capture-lost")) && !r.Force:
		return res, fmt.Errorf("capture disk: %w: disk 1: flush: input/output error", vmm.ErrLost)
	case f.faulty("capture-fail"):
		return res, errors.New("KVM said no")
	case r.Max == time.Nanosecond:
		return res, fmt.Errorf("%w: 4096 bytes are left, about 1ms", vmm.ErrPause)
	}
	if f.faulty("capture-lies") {
		r.Cut.Close()
	} else if err := cuttest.Pass(r.Cut); err != nil {
		return res, err
	}
	f.bootedMemory()
	size := f.size
	if err := r.Memory.Truncate(size); err != nil {
		return res, err
	}
	if err := f.digest(r.Digest); err != nil {
		return res, err
	}
	own := f.own()
	switch {
	case f.faulty("capture-forgets"):
		own = own[:len(own)-4096]
	case f.faulty("capture-alters"):
		own = slices.Clone(own)
		own[4096]++
	}
	if _, err := r.Memory.WriteAt(own, 0); err != nil {
		return res, err
	}
	taken := extent.NewPageSet(size)
	taken.Add(0, int64(len(own)))
	if f.maps == nil { // it booted: the rest of its memory is in no snapshot below
		if _, err := r.Memory.WriteAt([]byte(warmMemory), warmAt); err != nil {
			return res, err
		}
		taken.Add(warmAt, 4096)
	}
	if _, err := r.Index.Write(taken.Encode()); err != nil {
		return res, err
	}
	if f.faulty("capture-disk") {
		if _, err := f.disks[0].WriteAt([]byte("too late"), 0); err != nil {
			return res, err
		}
	}
	for i, own := range r.Disks {
		f.owns[i] = append(f.owns[i], own)
		frozen, err := f.disks[i].SwitchOverlay(own)
		if err != nil {
			return res, err
		}
		f.mu.Lock()
		if f.st.OverlayGeneration == nil {
			f.st.OverlayGeneration = make([]int, len(f.disks))
		}
		f.st.OverlayGeneration[i]++
		f.mu.Unlock()
		if err := frozen.SaveMap(); err != nil {
			return res, err
		}
		if f.faulty("capture-late") {
			return res, errors.New("the vCPU does not run")
		}
		if r.Stay {
			continue
		}
		// The guest continues: its writes from now on are in no snapshot.
		line := make([]byte, 4096)
		if _, err := f.disks[i].ReadAt(line, 4096); err != nil {
			return res, err
		}
		line = fmt.Appendf(bytes.TrimRight(line, "\x00"), "branch %d\n", f.st.OverlayGeneration[i])
		if _, err := f.disks[i].WriteAt(line, 4096); err != nil {
			return res, err
		}
		if err := f.disks[i].Flush(); err != nil {
			return res, err
		}
	}
	if _, err = r.State.WriteString(State()); err == nil && r.Stay && !f.faulty("capture-goes-on") {
		f.set(vmm.StatePaused, 0)
	}
	return vmm.CaptureResult{Pause: 2 * time.Millisecond, Mechanism: "wp-async", Rounds: 1, Bytes: 4096,
		PausedBytes: 4096, RunningAt: startgate.Now(),
		Steps: []vmm.PauseStep{{Name: "copy", Took: 2 * time.Millisecond}}}, err
}

func (f *fake) Captured() error {
	switch {
	case f.faulty("captured-fail"):
		return fmt.Errorf("write memory at 0: %w", unix.ENOSPC)
	case f.faulty("captured-slow"):
		time.Sleep(300 * time.Millisecond) // elapses: a slow disk
	}
	return nil
}

func (f *fake) Save(r vmm.SaveConfig) (vmm.SaveResult, error) {
	if f.faulty("save-hang") {
		time.Sleep(time.Hour)
	}
	if f.faulty("save-full") {
		r.Memory.WriteAt([]byte("half"), 0)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			return vmm.SaveResult{}, err
		}
		defer full.Close()
		_, err = full.WriteString("x")
		return vmm.SaveResult{}, fmt.Errorf("write memory: %w", err)
	}
	start, err := r.Memory.Seek(0, io.SeekCurrent)
	if err != nil {
		return vmm.SaveResult{}, err
	}
	if err := f.digest(r.Digest); err != nil {
		return vmm.SaveResult{}, err
	}
	text := warmMemory
	if f.faulty("save-alters") {
		text = "cold" + text[4:]
	}
	if _, err := r.Memory.WriteAt([]byte(text), start+warmAt); err != nil {
		return vmm.SaveResult{}, err
	}
	if len(r.Disks) != len(f.disks) {
		return vmm.SaveResult{}, fmt.Errorf("%d files for %d disks", len(r.Disks), len(f.disks))
	}
	for i, d := range f.disks {
		if _, err := d.CopyTo(r.Disks[i]); err != nil {
			return vmm.SaveResult{}, err
		}
	}
	_, err = r.State.WriteString(State())
	return vmm.SaveResult{MemoryBytes: 11, StateBytes: int64(len(State()))}, err
}
