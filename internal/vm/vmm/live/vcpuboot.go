package live

import (
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/kvm"
)

// MSRs set at boot (Intel SDM volume 4).
const (
	msrMiscEnable = 0x1a0
	fastStrings   = 1
	mtrrWriteBack = 1<<11 | 6 // enabled, default type write-back
)

// setUpVCPU prepares a vCPU for its first entry. All except the first wait for the start-up
// interrupt in their initial KVM state.
func setUpVCPU(c *kvm.VCPU, s boot.Start) error {
	if _, err := c.SetMSRs([]kvm.MSR{{Index: msrMTRRDefType, Value: mtrrWriteBack},
		{Index: msrMiscEnable, Value: fastStrings}}); err != nil {
		return err
	}
	if c.ID() != 0 {
		return nil
	}
	if err := c.SetRegs(&kvm.Regs{RIP: s.RIP, RSP: s.RSP, RBP: s.RSP, RSI: s.RSI, RFLAGS: 2}); err != nil {
		return err
	}
	sr, err := c.SRegs()
	if err != nil {
		return err
	}
	longMode(&sr, s)
	return c.SetSRegs(&sr)
}

// CR0 bits besides PE and PG: MP, ET, NE, WP, as set by Linux itself.
const cr0Base = 1<<1 | 1<<4 | 1<<5 | 1<<16

func longMode(sr *kvm.SRegs, s boot.Start) {
	flat := kvm.Segment{Limit: 0xffffffff, Present: 1, S: 1, G: 1}
	code, data, task := flat, flat, kvm.Segment{Limit: 0xffffffff, Present: 1, G: 1, Type: 0xb, Selector: s.TR}
	code.Selector, code.Type, code.L = s.CS, 0xb, 1
	data.Selector, data.Type, data.DB = s.DS, 0x3, 1
	sr.CS, sr.TR = code, task
	sr.DS, sr.ES, sr.FS, sr.GS, sr.SS = data, data, data, data, data
	sr.GDT = kvm.DTable{Base: s.GDTBase, Limit: s.GDTLimit}
	sr.IDT = kvm.DTable{}
	sr.CR0 = boot.CR0PE | boot.CR0PG | cr0Base
	sr.CR3, sr.CR4 = s.CR3, boot.CR4PAE
	sr.EFER |= boot.EFERLME | boot.EFERLMA
}
