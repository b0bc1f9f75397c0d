package live

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A bare guest is a guest without an operating system: a few hundred bytes of machine code that
// execute a script of loads, stores and port accesses. It boots immediately and can do things that
// no kernel allows a program.

// Guest-physical addresses of a bare guest, within bareMiB of memory.
const (
	bareMiB     = 64
	bareCode    = 0x100000
	barePD      = 0x300000  // page directory of the fourth GiB, with the devices
	bareScript  = 0x400000  // operations, up to bareRings
	bareRings   = 0x1000000 // virtqueues of the test's drivers
	bareBuffers = 0x2000000
	bareResults = 0x3000000 // results of loads, 8 bytes each, a ring of 1 MiB
	bareMark    = 0x3200000 // set at the end of a script
	bareBeat    = 0x3201000 // counted up while the guest spins
	bareEnd     = bareMiB << 20
	bootPDPT    = 0xa000 // of the page tables from package boot
)

type opcode uint32

const (
	opPowerOff opcode = iota
	opStore8
	opStore16
	opStore32
	opStore64
	opLoad8
	opLoad16
	opLoad32
	opLoad64
	opOut8
	opOut16
	opOut32
	opIn8
	opIn16
	opIn32
	opHalt
	opOutString // count bytes from value to port addr
	opInString  // count bytes from port addr to value
	opLoop      // count times from addr
	opSpin
	opAwaitBit   // until the word at addr has a bit of value, at most count times
	opAwaitEqual // until the 16-bit words at addr and at value are equal, at most count times
	opAdd16
	opWriteMSR
	opTripleFault
	opCopy       // count bytes from value to addr
	opBeat       // for ever
	opKeepTSC    // to the 64-bit word at addr, for ever
	opCountUntil // counts failed tests of the word at addr for a bit of value, into the word at stride
	opcodes
)

// tail is the continuation of a handler.
type tail int

const (
	toNext tail = iota
	toAgain
	toLog
	toNowhere
)

// bareHandlers are the operations' code. RDI is the address, RBX the value, ECX the count, RSI the
// next operation.
var bareHandlers = [opcodes]struct {
	code []byte
	then tail
}{
	opPowerOff:    {[]byte{0x66, 0xba, 0x01, 0x06, 0xb0, 0x34, 0xee, 0xf4}, toNowhere},                                     // mov dx,0x601; mov al,0x34; out dx,al; hlt
	opStore8:      {[]byte{0x88, 0x1f}, toAgain},                                                                           // mov [rdi],bl
	opStore16:     {[]byte{0x66, 0x89, 0x1f}, toAgain},                                                                     // mov [rdi],bx
	opStore32:     {[]byte{0x89, 0x1f}, toAgain},                                                                           // mov [rdi],ebx
	opStore64:     {[]byte{0x48, 0x89, 0x1f}, toAgain},                                                                     // mov [rdi],rbx
	opLoad8:       {[]byte{0x0f, 0xb6, 0x07}, toLog},                                                                       // movzx eax,byte [rdi]
	opLoad16:      {[]byte{0x0f, 0xb7, 0x07}, toLog},                                                                       // movzx eax,word [rdi]
	opLoad32:      {[]byte{0x8b, 0x07}, toLog},                                                                             // mov eax,[rdi]
	opLoad64:      {[]byte{0x48, 0x8b, 0x07}, toLog},                                                                       // mov rax,[rdi]
	opOut8:        {[]byte{0x89, 0xfa, 0x89, 0xd8, 0xee}, toAgain},                                                         // mov edx,edi; mov eax,ebx; out dx,al
	opOut16:       {[]byte{0x89, 0xfa, 0x89, 0xd8, 0x66, 0xef}, toAgain},                                                   // … out dx,ax
	opOut32:       {[]byte{0x89, 0xfa, 0x89, 0xd8, 0xef}, toAgain},                                                         // … out dx,eax
	opIn8:         {[]byte{0x89, 0xfa, 0x31, 0xc0, 0xec}, toLog},                                                           // mov edx,edi; xor eax,eax; in al,dx
	opIn16:        {[]byte{0x89, 0xfa, 0x31, 0xc0, 0x66, 0xed}, toLog},                                                     // … in ax,dx
	opIn32:        {[]byte{0x89, 0xfa, 0x31, 0xc0, 0xed}, toLog},                                                           // … in eax,dx
	opHalt:        {[]byte{0xf4, 0xeb, 0xfd}, toNowhere},                                                                   // hlt; jmp back
	opOutString:   {[]byte{0x56, 0x48, 0x89, 0xde, 0x89, 0xfa, 0xf3, 0x6e, 0x5e}, toNext},                                  // push rsi; mov rsi,rbx; mov edx,edi; rep outsb; pop rsi
	opInString:    {[]byte{0x89, 0xfa, 0x48, 0x89, 0xdf, 0xf3, 0x6c}, toNext},                                              // mov edx,edi; mov rdi,rbx; rep insb
	opLoop:        {[]byte{0xff, 0x4e, 0xe4, 0x74, 0x03, 0x48, 0x89, 0xfe}, toNext},                                        // dec dword [rsi-28]; jz +3; mov rsi,rdi
	opSpin:        {[]byte{0xf3, 0x90}, toAgain},                                                                           // pause
	opAwaitBit:    {[]byte{0x31, 0xc0, 0x85, 0x1f, 0x74, 0x05, 0xb9, 0x01, 0, 0, 0, 0xf3, 0x90}, toAgain},                  // xor eax,eax; test [rdi],ebx; jz +5; mov ecx,1; pause
	opAwaitEqual:  {[]byte{0x66, 0x8b, 0x07, 0x66, 0x3b, 0x03, 0x75, 0x05, 0xb9, 0x01, 0, 0, 0, 0xf3, 0x90}, toAgain},      // mov ax,[rdi]; cmp ax,[rbx]; jne +5; mov ecx,1; pause
	opAdd16:       {[]byte{0x66, 0x01, 0x1f}, toAgain},                                                                     // add [rdi],bx
	opWriteMSR:    {[]byte{0x89, 0xf9, 0x89, 0xd8, 0x48, 0x89, 0xda, 0x48, 0xc1, 0xea, 0x20, 0x0f, 0x30}, toNext},          // mov ecx,edi; mov eax,ebx; mov rdx,rbx; shr rdx,32; wrmsr
	opTripleFault: {[]byte{0x0f, 0x0b}, toNowhere},                                                                         // ud2, no IDT
	opCopy:        {[]byte{0x56, 0x48, 0x89, 0xde, 0xf3, 0xa4, 0x5e}, toNext},                                              // push rsi; mov rsi,rbx; rep movsb; pop rsi
	opKeepTSC:     {[]byte{0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0x48, 0x89, 0x07, 0xeb, 0xf2}, toNowhere}, // rdtsc; shl rdx,32; or rax,rdx; mov [rdi],rax; jmp back
	opCountUntil:  {[]byte{0x85, 0x1f, 0x75, 0x05, 0xff, 0x45, 0x00, 0xeb, 0xf7}, toNext},                                  // test [rdi],ebx; jnz +5; inc dword [rbp]; jmp back
	opBeat:        {[]byte{0xff, 0x07, 0xeb, 0xfc}, toNowhere},                                                             // inc dword [rdi]; jmp back
}

// bareMachineCode is the interpreter: a header, then 32 bytes per operation.
func bareMachineCode() []byte {
	const slot, head = 32, 0x60
	code := []byte{
		0xbe, 0x00, 0x00, 0x40, 0x00, // mov esi,bareScript
		0x41, 0xbf, 0x00, 0x00, 0x00, 0x03, // mov r15d,bareResults
		// next (0x0b):
		0x8b, 0x06, 0x8b, 0x4e, 0x04, // mov eax,[rsi]; mov ecx,[rsi+4]
		0x48, 0x8b, 0x7e, 0x08, 0x48, 0x8b, 0x5e, 0x10, 0x48, 0x8b, 0x6e, 0x18, // mov rdi,[rsi+8]; mov rbx,[rsi+16]; mov rbp,[rsi+24]
		0x48, 0x83, 0xc6, 0x20, // add rsi,32
		0x4c, 0x8d, 0x05, 0x39, 0x00, 0x00, 0x00, // lea r8,[handlers]
		0xc1, 0xe0, 0x05, 0x49, 0x01, 0xc0, // shl eax,5; add r8,rax
		// redo (0x2d):
		0x41, 0xff, 0xe0, // jmp r8
		// log (0x30): append RAX to the results, which wrap
		0x49, 0x89, 0x07, 0x49, 0x83, 0xc7, 0x08, 0x49, 0x81, 0xe7, 0xff, 0xff, 0xef, 0xff,
		// again (0x3e): add rdi,rbp; dec ecx; jnz redo; jmp next
		0x48, 0x01, 0xef, 0xff, 0xc9, 0x75, 0xe8, 0xeb, 0xc4,
	}
	targets := map[tail]int{toNext: 0x0b, toAgain: 0x3e, toLog: 0x30}
	for i, h := range bareHandlers {
		for len(code) < head+i*slot {
			code = append(code, 0x90)
		}
		code = append(code, h.code...)
		if at, ok := targets[h.then]; ok {
			code = append(code, 0xe9)
			code = binary.LittleEndian.AppendUint32(code, uint32(at-len(code)-4))
		}
	}
	return code
}

// script is a bare guest's program and initial memory.
type script struct {
	ops  []byte
	data map[uint64][]byte
}

func newScript() *script {
	s := &script{data: map[uint64][]byte{}}
	// Map the fourth GiB one to one, in 2 MiB pages.
	pd := make([]byte, 0, 4096)
	for i := range uint64(512) {
		pd = binary.LittleEndian.AppendUint64(pd, 3<<30+i<<21|0x83)
	}
	s.data[barePD] = pd
	s.op(opStore64, bootPDPT+3*8, barePD|3)
	return s
}

func (s *script) op(code opcode, addr, value uint64) { s.repeat(code, 1, addr, value, 0) }

// repeat adds an operation, executed count times (at least once), stride apart.
func (s *script) repeat(code opcode, count uint32, addr, value, stride uint64) {
	le := binary.LittleEndian
	s.ops = le.AppendUint32(s.ops, uint32(code))
	s.ops = le.AppendUint32(s.ops, count)
	for _, v := range []uint64{addr, value, stride} {
		s.ops = le.AppendUint64(s.ops, v)
	}
}

// here returns the address of the next operation, for loop.
func (s *script) here() uint64 { return bareScript + uint64(len(s.ops)) }

// loop repeats the operations added since `from`, n times in total.
func (s *script) loop(from uint64, n uint32) { s.repeat(opLoop, n, from, 0, 0) }

// finish marks the end and then counts for ever, so that the guest stays alive.
func (s *script) finish() {
	s.op(opStore32, bareMark, 1)
	s.op(opBeat, bareBeat, 0)
}

// kernel returns the script as an ELF file.
func (s *script) kernel() []byte {
	segments := map[uint64][]byte{bareCode: bareMachineCode(), bareScript: s.ops}
	for at, b := range s.data {
		segments[at] = b
	}
	le := binary.LittleEndian
	out := make([]byte, 64+56*len(segments))
	copy(out, "\x7fELF\x02\x01\x01")
	le.PutUint16(out[16:], 2)    // ET_EXEC
	le.PutUint16(out[18:], 0x3e) // x86-64
	le.PutUint32(out[20:], 1)
	le.PutUint64(out[24:], bareCode)
	le.PutUint64(out[32:], 64) // program headers
	le.PutUint16(out[52:], 64)
	le.PutUint16(out[54:], 56)
	le.PutUint16(out[56:], uint16(len(segments)))
	le.PutUint16(out[58:], 64)
	i := 0
	for at, b := range segments {
		p := out[64+56*i:]
		le.PutUint32(p, 1) // PT_LOAD
		le.PutUint32(p[4:], 7)
		le.PutUint64(p[8:], uint64(len(out)))
		le.PutUint64(p[16:], at)
		le.PutUint64(p[24:], at)
		le.PutUint64(p[32:], uint64(len(b)))
		le.PutUint64(p[40:], uint64(len(b)))
		out = append(out, b...)
		i++
	}
	return out
}

// bareVM is a bare guest's machine with two disks, the first read-only.
type bareVM struct {
	*guestVM
	vsockPath string
	disks     [bareDisks]string
}

const (
	bareDisks    = 2
	bareDiskSize = 1 << 20

	slotReadOnly = 0
	slotDisk     = 1
	slotVsock    = bareDisks
	slotRNG      = bareDisks + 1
	slotNet      = bareDisks + 2
	slotBalloon  = bareDisks + 3
)

// hostDial answers the guest's connections to ports of the host.
type hostDial = func(ctx context.Context, port uint32) (net.Conn, error)

// newBare creates the shell of a bare guest.
func newBare(t *testing.T) *bareVM {
	t.Helper()
	return newBareLogging(t, consoleMax)
}

// newBareLogging is newBare with another limit of the console log.
func newBareLogging(t *testing.T, max int64) *bareVM {
	t.Helper()
	return newBareShaped(t, vmspec.Shape{MemoryMiB: bareMiB, VCPUs: 1, Disks: bareDisks}, max)
}

// newBareShaped is newBareLogging with more vCPUs. They wait for ever, because a script is only for
// the first.
func newBareShaped(t *testing.T, shape vmspec.Shape, max int64) *bareVM {
	t.Helper()
	v := &bareVM{guestVM: newShellLogging(t, shape, max)}
	dir := t.TempDir()
	v.vsockPath = filepath.Join(dir, "vsock")
	for i := range v.disks {
		v.disks[i] = filepath.Join(dir, fmt.Sprint("disk", i))
		if err := os.WriteFile(v.disks[i], bytes.Repeat([]byte{byte('0' + i)}, bareDiskSize), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// openDisks opens the disks again.
func (v *bareVM) openDisks() (disks []vmm.Disk) {
	v.t.Helper()
	for i, path := range v.disks {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			v.t.Fatal(err)
		}
		disks = append(disks, vmm.Disk{File: f, ReadOnly: i == slotReadOnly})
	}
	return disks
}

// attachHost opens the host's side of the devices again.
func (v *bareVM) attachHost(dial hostDial) (disks []vmm.Disk) {
	v.t.Helper()
	l, err := net.Listen("unix", v.vsockPath)
	if err != nil {
		v.t.Fatal(err)
	}
	v.devices.host = Host{Vsock: l, Dial: dial, Net: echoNetwork{}}
	return v.openDisks()
}

// bootBare runs a script.
func bootBare(t *testing.T, s *script, dial hostDial) *bareVM {
	t.Helper()
	v := newBare(t)
	v.run(s, dial)
	return v
}

// run boots a script in a shell.
func (v *bareVM) run(s *script, dial hostDial) {
	v.t.Helper()
	if err := v.Boot(vmm.BootConfig{Kernel: memoryFile(v.t, s.kernel()), CID: 3, Disks: v.attachHost(dial)}); err != nil {
		v.t.Fatal(err)
	}
}

// word reads a word of the running guest's memory.
func (v *bareVM) word(gpa uint64) uint32 {
	v.t.Helper()
	w, err := v.mem.LoadUint32(gpa)
	if err != nil {
		v.t.Fatal(err)
	}
	return w
}

// waitMark waits until the script has ended.
func (v *bareVM) waitMark() {
	v.t.Helper()
	v.until("the script's end", func() bool { return v.word(bareMark) != 0 })
}

// until waits for a condition. It fails if the guest ends meanwhile.
func (v *bareVM) until(what string, ok func() bool) {
	v.t.Helper()
	for deadline := time.Now().Add(bootLimit); !ok(); time.Sleep(2 * time.Millisecond) {
		select {
		case e := <-v.ended:
			v.t.Fatalf("the guest ended while waiting for %s: %+v", what, e)
		default:
		}
		if time.Now().After(deadline) {
			v.t.Fatalf("waited %v for %s", bootLimit, what)
		}
	}
}

// waitBeat verifies that the guest runs.
func (v *bareVM) waitBeat() {
	v.t.Helper()
	was := v.word(bareBeat)
	v.until("the guest's heartbeat", func() bool { return v.word(bareBeat) != was })
}

// results returns the first n values read by loads.
func (v *bareVM) results(n int) []uint64 {
	v.t.Helper()
	b := make([]byte, 8*n)
	if err := v.mem.ReadAt(b, bareResults); err != nil {
		v.t.Fatal(err)
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out
}

// checkSound verifies that a machine with a misbehaving guest, which still counts, can be paused,
// saved, restored and resumed, and that its read-only disk is unharmed.
func (v *bareVM) checkSound() {
	v.t.Helper()
	v.waitBeat()
	s := v.save()
	child := newBare(v.t)
	child.disks = v.disks
	if _, err := child.Restore(s.blueprint(v.t, child.Machine, 3, child.attachHost(nil)...)); err != nil {
		v.t.Fatalf("restore: %v", err)
	}
	child.waitBeat()
	if _, err := v.Resume(); err != nil {
		v.t.Fatal(err)
	}
	v.waitBeat()
	v.checkReadOnlyDisk()
}

func (v *bareVM) checkReadOnlyDisk() {
	v.t.Helper()
	b, err := os.ReadFile(v.disks[slotReadOnly])
	if err != nil {
		v.t.Fatal(err)
	}
	if !bytes.Equal(b, bytes.Repeat([]byte{'0'}, bareDiskSize)) {
		v.t.Error("the guest changed its read-only disk")
	}
}
