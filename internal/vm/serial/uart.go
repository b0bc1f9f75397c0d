package serial

import (
	"io"
	"sync"
)

// Registers by offset (16550 datasheet, PC16550D, table II).
const (
	regData = 0 // THR, RBR; divisor low with DLAB
	regIER  = 1 // divisor high with DLAB
	regIIR  = 2 // read; FCR on write
	regLCR  = 3
	regMCR  = 4
	regLSR  = 5
	regMSR  = 6
	regSCR  = 7
)

const (
	ierTHRE   = 0x02
	iirNone   = 0x01
	iirTHRE   = 0x02
	iirFIFO   = 0xc0
	lcrDLAB   = 0x80
	mcrLoop   = 0x10
	lsrIdle   = 0x60 // THR and transmitter empty
	msrReady  = 0xb0 // DCD, DSR, CTS
	portCount = 8
)

// PortCount is a UART's number of ports.
const PortCount = portCount

// UART is a send-only 16550. Its methods are safe for concurrent use.
type UART struct {
	out   io.Writer
	raise func()

	mu  sync.Mutex // guards the registers
	reg state
}

type state struct {
	IER, LCR, MCR, SCR, DLL, DLM uint8
	THREPending                  bool
}

// New returns a UART in its reset state. out receives the guest's output; raise triggers its (edge)
// interrupt.
func New(out io.Writer, raise func()) *UART { return &UART{out: out, raise: raise} }

// Write handles a guest's write to the port at offset 0 to 7.
func (u *UART) Write(offset uint16, v uint8) {
	u.mu.Lock()
	irq, send := u.write(offset, v)
	u.mu.Unlock()
	if send {
		u.out.Write([]byte{v})
	}
	if irq {
		u.raise()
	}
}

func (u *UART) write(offset uint16, v uint8) (irq, send bool) {
	r := &u.reg
	switch {
	case offset == regData && r.LCR&lcrDLAB != 0:
		r.DLL = v
	case offset == regData:
		send = r.MCR&mcrLoop == 0 // in loopback the byte would come back; no driver reads it
		r.THREPending = true
		irq = r.IER&ierTHRE != 0
	case offset == regIER && r.LCR&lcrDLAB != 0:
		r.DLM = v
	case offset == regIER:
		// Enabling the interrupt with an empty transmitter raises it immediately.
		irq = v&ierTHRE != 0 && r.IER&ierTHRE == 0
		r.THREPending = r.THREPending || irq
		r.IER = v & 0x0f
	case offset == regLCR:
		r.LCR = v
	case offset == regMCR:
		r.MCR = v & 0x1f
	case offset == regSCR:
		r.SCR = v
	}
	return irq, send
}

// Read handles a guest's read of the port at offset 0 to 7.
func (u *UART) Read(offset uint16) uint8 {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := &u.reg
	switch {
	case offset == regData && r.LCR&lcrDLAB != 0:
		return r.DLL
	case offset == regIER && r.LCR&lcrDLAB != 0:
		return r.DLM
	case offset == regIER:
		return r.IER
	case offset == regIIR:
		if r.THREPending && r.IER&ierTHRE != 0 {
			r.THREPending = false // reading IIR acknowledges it
			return iirFIFO | iirTHRE
		}
		return iirFIFO | iirNone
	case offset == regLCR:
		return r.LCR
	case offset == regMCR:
		return r.MCR
	case offset == regLSR:
		return lsrIdle
	case offset == regMSR:
		return r.modemStatus()
	case offset == regSCR:
		return r.SCR
	}
	return 0
}

// modemStatus returns the modem status. In loopback mode it reflects the outputs, by which Linux
// distinguishes a UART from an empty socket.
func (r *state) modemStatus() uint8 {
	if r.MCR&mcrLoop == 0 {
		return msrReady
	}
	m := r.MCR
	return m&0x02<<3 | m&0x01<<5 | m&0x04<<4 | m&0x08<<4
}

// StateVersion is the version of the UART's saved state.
const StateVersion = 1

const stateSize = 7

// SaveState returns the registers.
func (u *UART) SaveState() []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := &u.reg
	pending := uint8(0)
	if r.THREPending {
		pending = 1
	}
	return []byte{r.IER, r.LCR, r.MCR, r.SCR, r.DLL, r.DLM, pending}
}

// RestoreState loads the registers, and raises the interrupt if the guest has not acknowledged it
// yet.
func (u *UART) RestoreState(b []byte) error {
	if len(b) != stateSize {
		return io.ErrUnexpectedEOF
	}
	u.mu.Lock()
	u.reg = state{IER: b[0] & 0x0f, LCR: b[1], MCR: b[2] & 0x1f, SCR: b[3], DLL: b[4], DLM: b[5], THREPending: b[6] == 1}
	irq := u.reg.THREPending && u.reg.IER&ierTHRE != 0
	u.mu.Unlock()
	if irq {
		u.raise()
	}
	return nil
}
