package live

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/kvm"
)

// CPUID leaves changed for the guest.
const (
	leafFeatures    = 0x1
	leafStructured  = 0x7
	leafPerfMon     = 0xa
	leafTopology    = 0xb
	leafXState      = 0xd
	leafTopologyV2  = 0x1f
	leafKVM         = 0x40000001
	leafExtFeatures = 0x80000001
	leafAddrSizes   = 0x80000008
	leafSVM         = 0x8000000a
	leafAMDTopology = 0x8000001e
	leafAMDPerfMon2 = 0x80000022
)

const (
	ecxMonitor     = 1 << 3
	ecxVMX         = 1 << 5
	ecxPDCM        = 1 << 15
	ecxTSCDeadline = 1 << 24
	ecxHypervisor  = 1 << 31
	ecxSHSTK       = 1 << 7  // of leafStructured
	edxIBT         = 1 << 20 // of leafStructured
	xssCET         = 3 << 11 // of leafXState 1: user and supervisor state
	ecxSVM         = 1 << 2  // of leafExtFeatures
	ecxPerfCore    = 1 << 23 // of leafExtFeatures
)

// kvmFeatures are the paravirtual features offered (Documentation/virt/kvm/x86/cpuid.rst): clock
// (0, 3, 24), no delay on port access (1), EOI without exit (6), IPIs by hypercall (11). Features
// with per-vCPU pages, which every fork would dirty, are not offered (steal time, asynchronous page
// faults).
const kvmFeatures = 1<<0 | 1<<1 | 1<<3 | pvEOI | 1<<11 | 1<<24

// pvEOI lets the guest end an interrupt without an exit.
const pvEOI = 1 << 6

// featuresOn returns the paravirtual features for guests on a host. On a CPU emulated by QEMU, an
// interrupt may be delivered twice until the guest's next exit (docs/inside/testing.md), so there
// each interrupt ends with an exit.
func featuresOn(host []kvm.CPUIDEntry) uint32 {
	if emulated(host) {
		return kvmFeatures &^ pvEOI
	}
	return kvmFeatures
}

// emulated reports whether the host's CPU is the one that QEMU's TCG emulates by default: family 6
// of AMD. AMD's processors with SVM have family 15 or later. KVM's table has no brand string.
func emulated(host []kvm.CPUIDEntry) bool {
	return cpuid.Vendor(host) == "AuthenticAMD" && cpuid.SignatureOf(host).Family == 6
}

// guestCPUID returns the table for vCPU 0 of a machine with n vCPUs on this host. It excludes
// nested virtualisation, performance counters and control-flow enforcement (CET), because their
// state is not saved. CET's shadow-stack pointer is not in KVM's MSR list and needs an interface of
// its own (Linux 6.18).
func guestCPUID(host []kvm.CPUIDEntry, n int, tscDeadline bool) []kvm.CPUIDEntry {
	topology := topologyLeaves(n)
	out := make([]kvm.CPUIDEntry, 0, len(host)+len(topology))
	for _, e := range host {
		switch e.Function {
		case leafFeatures:
			e.ECX &^= ecxMonitor | ecxVMX | ecxPDCM
			e.ECX |= ecxHypervisor
			if tscDeadline {
				e.ECX |= ecxTSCDeadline
			}
			e.EBX = e.EBX&0xff00ffff | uint32(n)<<16
		case leafStructured:
			if e.Index == 0 {
				e.ECX &^= ecxSHSTK
				e.EDX &^= edxIBT
			}
		case leafXState:
			maskXState(&e)
		case leafPerfMon, leafSVM, leafAMDPerfMon2:
			e.EAX, e.EBX, e.ECX, e.EDX = 0, 0, 0, 0
		case leafKVM:
			e.EAX &= featuresOn(host)
		case leafExtFeatures:
			e.ECX &^= ecxSVM | ecxPerfCore
		case leafAddrSizes:
			e.ECX = e.ECX&^0xf0ff | uint32(apicBits(n))<<12 | uint32(n-1)
		case leafTopology, leafTopologyV2:
			continue // rebuilt below
		}
		out = append(out, e)
	}
	// KVM reads some leaves from the CPU of the call, so they contain its number.
	out = append(out, topology...)
	setVCPU(out, 0)
	return out
}

// maskXState removes CET's components from the leaf describing the state saved by XSAVES.
func maskXState(e *kvm.CPUIDEntry) {
	switch e.Index {
	case 1:
		e.ECX &^= xssCET
	case 11, 12:
		e.EAX, e.EBX, e.ECX, e.EDX = 0, 0, 0, 0
	}
}

// apicBits returns the width of an APIC id for n vCPUs.
func apicBits(n int) int { return bits.Len(uint(n - 1)) }

// topologyLeaves returns the leaves of one socket of n single-threaded cores (Intel SDM 2A, CPUID
// leaf 0BH).
func topologyLeaves(n int) []kvm.CPUIDEntry {
	const thread, core = 1 << 8, 2 << 8
	return []kvm.CPUIDEntry{
		{Function: leafTopology, Index: 0, Flags: kvm.CPUIDSignificantIndex, EAX: 0, EBX: 1, ECX: thread},
		{Function: leafTopology, Index: 1, Flags: kvm.CPUIDSignificantIndex, EAX: uint32(apicBits(n)), EBX: uint32(n), ECX: core | 1},
		{Function: leafTopology, Index: 2, Flags: kvm.CPUIDSignificantIndex, ECX: 2},
	}
}

// checkCPU returns an error if the guest has seen another maker's CPU, or features missing on this
// host: such a guest would crash at some later instruction. Another model of the same maker is fine
// if it has the features. A guest relies on features, and uses the model only for workarounds
// chosen at boot.
func checkCPU(need, host []kvm.CPUIDEntry) error {
	if was, is := cpuid.Vendor(need), cpuid.Vendor(host); was != is {
		// The makers differ in the behaviour of system calls, segments and MSRs, and a kernel is
		// patched for one maker at boot.
		return fmt.Errorf("the snapshot was made on a CPU of %q (%s) and this host's is of %q (%s): restore it on a host "+
			"of the same maker",
			was, cpuid.SignatureOf(need), is, cpuid.SignatureOf(host))
	}
	if missing := cpuid.Missing(need, host); len(missing) > 0 {
		return fmt.Errorf("this host's CPU lacks features that the snapshot needs: %s", strings.Join(missing, ", "))
	}
	return nil
}

// forVCPU returns the table for the vCPU with APIC id id.
func forVCPU(table []kvm.CPUIDEntry, id int) []kvm.CPUIDEntry {
	out := slices.Clone(table)
	setVCPU(out, id)
	return out
}

// setVCPU writes the vCPU's APIC id into the table.
func setVCPU(table []kvm.CPUIDEntry, id int) {
	for i := range table {
		e := &table[i]
		switch e.Function {
		case leafFeatures:
			e.EBX = e.EBX&0x00ffffff | uint32(id)<<24
		case leafTopology:
			e.EDX = uint32(id)
		case leafAMDTopology:
			e.EAX, e.EBX, e.ECX = uint32(id), uint32(id), 0
		}
	}
}
