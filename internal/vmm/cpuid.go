package vmm

import (
	"math/bits"

	"github.com/forkd/forkd/internal/kvm"
)

// CPUID leaves that are changed for the guest.
const (
	leafFeatures    = 0x1
	leafPerfMon     = 0xa
	leafTopology    = 0xb
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
	ecxSVM         = 1 << 2  // of leafExtFeatures
	ecxPerfCore    = 1 << 23 // of leafExtFeatures
)

// kvmFeatures are the paravirtual features offered (Documentation/virt/kvm/x86/cpuid.rst):
// clock (0, 3, 24), no delay on port access (1), EOI without exit (6), IPIs by
// hypercall (11). Not offered: what keeps per-vCPU pages that every fork would
// dirty (steal time, asynchronous page faults).
const kvmFeatures = 1<<0 | 1<<1 | 1<<3 | 1<<6 | 1<<11 | 1<<24

// guestCPUID is the table for vCPU 0 of a machine with n vCPUs on this host. No
// nested virtualisation and no performance counters: their state is not saved.
func guestCPUID(host []kvm.CPUIDEntry, n int, tscDeadline bool) []kvm.CPUIDEntry {
	var out []kvm.CPUIDEntry
	for _, e := range host {
		switch e.Function {
		case leafFeatures:
			e.ECX &^= ecxMonitor | ecxVMX | ecxPDCM
			e.ECX |= ecxHypervisor
			if tscDeadline {
				e.ECX |= ecxTSCDeadline
			}
			e.EBX = e.EBX&0xff00ffff | uint32(n)<<16
		case leafPerfMon, leafSVM, leafAMDPerfMon2:
			e.EAX, e.EBX, e.ECX, e.EDX = 0, 0, 0, 0
		case leafKVM:
			e.EAX &= kvmFeatures
		case leafExtFeatures:
			e.ECX &^= ecxSVM | ecxPerfCore
		case leafAddrSizes:
			e.ECX = e.ECX&^0xf0ff | uint32(apicBits(n))<<12 | uint32(n-1)
		case leafTopology, leafTopologyV2:
			continue // made anew below
		}
		out = append(out, e)
	}
	return append(out, topologyLeaves(n)...)
}

// apicBits is the width of an APIC id for n vCPUs.
func apicBits(n int) int { return bits.Len(uint(n - 1)) }

// topologyLeaves describe one socket of n single-threaded cores (Intel SDM 2A, CPUID leaf 0BH).
func topologyLeaves(n int) []kvm.CPUIDEntry {
	const thread, core = 1 << 8, 2 << 8
	return []kvm.CPUIDEntry{
		{Function: leafTopology, Index: 0, Flags: kvm.CPUIDSignificantIndex, EAX: 0, EBX: 1, ECX: thread},
		{Function: leafTopology, Index: 1, Flags: kvm.CPUIDSignificantIndex, EAX: uint32(apicBits(n)), EBX: uint32(n), ECX: core | 1},
		{Function: leafTopology, Index: 2, Flags: kvm.CPUIDSignificantIndex, ECX: 2},
	}
}

// forVCPU puts the vCPU's APIC id where the table shows it.
func forVCPU(table []kvm.CPUIDEntry, id int) []kvm.CPUIDEntry {
	out := make([]kvm.CPUIDEntry, len(table))
	copy(out, table)
	for i := range out {
		e := &out[i]
		switch e.Function {
		case leafFeatures:
			e.EBX = e.EBX&0x00ffffff | uint32(id)<<24
		case leafTopology:
			e.EDX = uint32(id)
		case leafAMDTopology:
			e.EAX, e.EBX, e.ECX = uint32(id), uint32(id), 0
		}
	}
	return out
}
