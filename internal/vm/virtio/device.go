package virtio

// Device types (virtio 1.2 §5).
const (
	TypeNet     = 1
	TypeBlock   = 2
	TypeEntropy = 4
	TypeBalloon = 5
	TypeVsock   = 19
)

// Feature bits of the ring and the transport (virtio 1.2 §6). The transport
// adds them to what a device offers; devices do not deal with them.
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
// The transport calls Activate, Reset, SaveState and RestoreState one at a
// time. Kick, ReadConfig and WriteConfig may come from any goroutine at any
// moment, so a device guards itself with one lock, which it also holds while
// it touches guest memory: Pause and Reset are then no more than taking it.
// A device calls back into the transport only through its queues, and only
// while it is active.
type Device interface {
	// Type is the virtio device ID.
	Type() uint32
	// Features are the device-specific feature bits offered.
	Features() uint64
	// QueueSizes is the maximum size of each queue, powers of two.
	QueueSizes() []uint16
	// ReadConfig fills p with configuration space from off; bytes beyond its
	// end read as zero.
	ReadConfig(off uint64, p []byte)
	// WriteConfig is the driver's write to configuration space.
	WriteConfig(off uint64, p []byte)
	// Activate begins operation: the driver has set DRIVER_OK. There is one
	// queue per QueueSizes entry; queues the driver left unready are always
	// empty. Paused or not stays as it was.
	Activate(features uint64, queues []*Queue) error
	// Kick says that one or more queues were notified. It does the work that
	// can be done without waiting for anything but the backing file, in the
	// caller's goroutine.
	Kick()
	// Pause returns once no goroutine of the device touches guest memory and
	// every request taken from a ring has been completed.
	Pause()
	// Resume continues after Pause. Kicks that came in between were dropped:
	// the transport calls Kick afterwards.
	Resume()
	// Reset ends operation and forgets the queues and all driver state. After
	// it returned, nothing touches guest memory until the next Activate.
	Reset()
	// SaveState encodes what the device must keep over save and restore. The
	// device is paused. Drivers' negotiated state and ring positions are the
	// transport's part.
	SaveState() []byte
	// RestoreState takes what SaveState gave, from a file that is not
	// trusted. It is called before Activate, on a device that never ran.
	RestoreState(state []byte) error
	// Close is Reset, and waits for all goroutines the device started. It
	// does not close what the caller opened.
	Close() error
}
