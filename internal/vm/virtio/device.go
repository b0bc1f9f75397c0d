package virtio

// Device types (virtio 1.2 §5).
const (
	TypeNet     = 1
	TypeBlock   = 2
	TypeEntropy = 4
	TypeBalloon = 5
	TypeVsock   = 19
)

// Feature bits of the ring and the transport (virtio 1.2 §6). The transport adds them to the
// device's offer; devices do not handle them.
const (
	FeatureIndirectDesc = 1 << 28
	FeatureEventIdx     = 1 << 29
	FeatureVersion1     = 1 << 32

	ringFeatures = FeatureIndirectDesc | FeatureEventIdx | FeatureVersion1
)

// MaxQueues is the number of queues a device may have.
const MaxQueues = 8

// Device is one virtio device behind a transport.
//
// The transport calls Activate, Reset, SaveState and RestoreState one at a time. Kick, ReadConfig
// and WriteConfig may come from any goroutine at any time. A device therefore guards itself with
// one lock, which it also holds while it accesses guest memory: Pause and Reset only need to take
// it. A device calls back into the transport only through its queues, and only while it is active.
type Device interface {
	// Type returns the virtio device ID.
	Type() uint32
	// Features returns the device-specific feature bits offered.
	Features() uint64
	// QueueSizes returns the maximum size of each queue, powers of two.
	QueueSizes() []uint16
	// ReadConfig fills p with configuration space from off. Bytes beyond its end read as zero.
	ReadConfig(off uint64, p []byte)
	// WriteConfig handles the driver's write to configuration space.
	WriteConfig(off uint64, p []byte)
	// Activate begins operation: the driver has set DRIVER_OK. There is one queue per QueueSizes
	// entry; queues the driver left unready are always empty. A paused device stays paused.
	Activate(features uint64, queues []*Queue) error
	// Kick is called when one or more queues were notified. In the caller's goroutine, it does all
	// work that needs no waiting except for the backing file.
	Kick()
	// Pause returns once no goroutine of the device accesses guest memory and every request taken
	// from a ring has been completed.
	Pause()
	// Resume continues after Pause. Kicks in between were dropped, so the transport calls Kick
	// afterwards.
	Resume()
	// Reset ends operation and forgets the queues and all driver state. After it has returned, the
	// device does not access guest memory until the next Activate.
	Reset()
	// SaveState encodes the device's state to keep over save and restore. The device is paused. The
	// transport saves the driver's negotiated state and the ring positions.
	SaveState() []byte
	// RestoreState decodes the result of SaveState, from an untrusted file. It is called before
	// Activate, on a fresh device.
	RestoreState(state []byte) error
	// Close resets the device and waits for all goroutines it started. It does not close the
	// caller's files.
	Close() error
}
