package usernet

import "time"

// Limits limits the resources of one guest. Zero fields get their defaults.
type Limits struct {
	Flows        int           // concurrent flows, of all protocols
	FlowsPerSec  int           // new flows per second; also the burst
	Dials        int           // concurrent dials
	DialTime     time.Duration // time for one dial; default 2 minutes
	UDPIdle      time.Duration // idle time after which a flow of datagrams ends
	DNSIdle      time.Duration // the same for port 53
	Linger       time.Duration // time for a closed TCP flow's last bytes to be taken
	BufferMax    int           // per direction of a TCP flow, in bytes
	LargeBuffers int           // TCP flows allowed to grow to BufferMax; others have bufferSmall
	Queue        int           // bytes of frames waiting for room in the guest's ring
}

// bufferSmall is each direction's buffer of a TCP flow beyond LargeBuffers, in bytes.
const bufferSmall = 64 << 10

func (l Limits) withDefaults() Limits {
	orElse(&l.Flows, 1024)
	orElse(&l.FlowsPerSec, 256)
	orElse(&l.Dials, 64)               // as many as forkd-net opens concurrently for a VM
	orElse(&l.DialTime, 2*time.Minute) // a guest's own connect gives up after as long
	orElse(&l.UDPIdle, time.Minute)
	orElse(&l.DNSIdle, 10*time.Second)
	orElse(&l.Linger, time.Minute)
	orElse(&l.BufferMax, 1<<20)
	orElse(&l.LargeBuffers, 64)
	orElse(&l.Queue, 2<<20)
	return l
}

func orElse[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
