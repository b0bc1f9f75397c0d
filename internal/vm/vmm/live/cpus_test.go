package live

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Settings for the vCPUs' threads are applied once by each thread.
func TestEachVCPUThreadIsAsked(t *testing.T) {
	var c cpuSet
	for range 3 {
		v := newVCPU(nil, vcpuEvents{})
		c.all = append(c.all, v)
		defer func() { close(v.runs); v.thread.Wait() }()
	}
	tids := make(chan int, 3)
	err := c.each(func() error {
		tids <- unix.Gettid()
		return errors.New("no")
	})
	if err == nil || err.Error() != "no\nno\nno" {
		t.Errorf("got %v", err)
	}
	for _, v := range c.all {
		got := <-tids
		if !slices.ContainsFunc(c.all, func(o *vcpu) bool { return o.tid == got }) {
			t.Errorf("thread %d is no vCPU's, as %d is", got, v.tid)
		}
	}
}
