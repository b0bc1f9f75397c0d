package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/forkd/forkd/internal/hotset"
	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/vmmctl"
)

// Capture puts one page of its own into the files, as if the guest had written it.
func (f *fake) Capture(r vmmctl.CaptureRequest) (res vmmctl.CaptureResult, err error) {
	defer func() {
		for _, file := range []*os.File{r.Memory, r.State, r.Index} {
			file.Close()
		}
	}()
	switch {
	case f.spoiled("capture-fail"):
		return res, errors.New("KVM said no")
	case r.MaxPause == time.Nanosecond:
		return res, fmt.Errorf("%w: 4096 bytes are left, about 1ms", vmmctl.ErrPause)
	}
	size := f.size
	if err := r.Memory.Truncate(size); err != nil {
		return res, err
	}
	if _, err := r.Memory.WriteAt(f.mem[:4096], 0); err != nil {
		return res, err
	}
	var w hotset.Writer
	if err := w.Add(hotset.Run{Length: 4096, Written: true}); err != nil {
		return res, err
	}
	if _, err := r.Index.Write(w.Bytes(size)); err != nil {
		return res, err
	}
	for i, own := range r.Disks {
		f.owns[i] = append(f.owns[i], own)
		frozen, err := f.disks[i].Rotate(own)
		if err != nil {
			return res, err
		}
		f.mu.Lock()
		if f.st.Rotations == nil {
			f.st.Rotations = make([]int, len(f.disks))
		}
		f.st.Rotations[i]++
		f.mu.Unlock()
		if err := frozen.SaveMap(); err != nil {
			return res, err
		}
		if f.spoiled("capture-late") {
			return res, errors.New("the vCPU does not run")
		}
		// The guest goes on: what it writes now is in no snapshot.
		line := make([]byte, 4096)
		if _, err := f.disks[i].ReadAt(line, 4096); err != nil {
			return res, err
		}
		line = fmt.Appendf(bytes.TrimRight(line, "\x00"), "branch %d\n", f.st.Rotations[i])
		if _, err := f.disks[i].WriteAt(line, 4096); err != nil {
			return res, err
		}
		if err := f.disks[i].Flush(); err != nil {
			return res, err
		}
	}
	_, err = r.State.WriteString("the state")
	return vmmctl.CaptureResult{PauseNanos: 2e6, Mechanism: "wp-async", Rounds: 1, Bytes: 4096, PausedBytes: 4096, RunningAt: startgate.Now(),
		Pause: []vmmctl.PauseStep{{Name: "copy", Nanos: 2e6}}}, err
}

func (f *fake) Captured() error {
	switch {
	case f.spoiled("captured-fail"):
		return errors.New("write memory at 0: no space left on device")
	case f.spoiled("captured-slow"):
		time.Sleep(300 * time.Millisecond)
	}
	return nil
}

func (f *fake) Save(memory, state *os.File, disks []*os.File) (vmmctl.SaveResult, error) {
	if f.spoiled("save-hang") {
		time.Sleep(time.Hour)
	}
	if f.spoiled("save-full") {
		memory.WriteAt([]byte("half"), 0)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			return vmmctl.SaveResult{}, err
		}
		defer full.Close()
		_, err = full.WriteString("x")
		return vmmctl.SaveResult{}, fmt.Errorf("write memory: %w", err)
	}
	start, err := memory.Seek(0, io.SeekCurrent)
	if err != nil {
		return vmmctl.SaveResult{}, err
	}
	if _, err := memory.WriteAt([]byte("warm memory"), start+1<<20); err != nil {
		return vmmctl.SaveResult{}, err
	}
	if len(disks) != len(f.disks) {
		return vmmctl.SaveResult{}, fmt.Errorf("%d files for %d disks", len(disks), len(f.disks))
	}
	for i, d := range f.disks {
		if _, err := d.CopyTo(disks[i]); err != nil {
			return vmmctl.SaveResult{}, err
		}
	}
	_, err = state.WriteString("the state")
	return vmmctl.SaveResult{MemoryBytes: 11, StateBytes: 9}, err
}
