package kernelpkg

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// AllModules is the name of the set of all modules.
const AllModules = "all"

// sets are modules that belong together. A kernel may lack some of a set, because they are built in
// or of another version.
var sets = map[string][]string{
	// docker: what dockerd, containerd and podman load or ask for, with iptables and with nftables.
	"docker": {
		"overlay", "loop", "squashfs", "fuse", "tun", "veth", "bridge", "br_netfilter", "dummy", "macvlan", "ipvlan",
		"vxlan", "8021q", "nf_conntrack", "nf_conntrack_netlink", "nf_nat", "nf_tables", "nft_compat", "nft_chain_nat",
		"nft_ct", "nft_nat", "nft_masq", "nft_redir", "nft_reject", "nft_reject_inet", "nft_reject_ipv4", "nft_reject_ipv6",
		"nft_log", "nft_limit", "nft_fib", "nft_fib_inet", "nft_fib_ipv4", "nft_fib_ipv6", "nft_numgen", "nft_hash",
		"nft_socket", "nft_tproxy", "ip_tables", "iptable_filter", "iptable_nat", "iptable_mangle", "iptable_raw",
		"ip6_tables", "ip6table_filter", "ip6table_nat", "ip6table_mangle", "ip6table_raw", "xt_addrtype", "xt_bpf",
		"xt_cgroup", "xt_comment", "xt_connmark", "xt_conntrack", "xt_limit", "xt_LOG", "xt_mark", "xt_MASQUERADE",
		"xt_multiport", "xt_nat", "xt_NFLOG", "xt_owner", "xt_physdev", "xt_recent", "xt_REDIRECT", "xt_set",
		"xt_statistic", "xt_TCPMSS", "xt_tcpudp", "xt_TPROXY", "xt_u32", "ipt_REJECT", "ip6t_REJECT",
		"ip_set", "ip_set_hash_ip",
		"ip_set_hash_net", "ip_set_hash_ipport", "ip_set_bitmap_port", "ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh",
	},
}

// Sets returns the names of the sets of modules that Tree knows.
func Sets() []string { return append(slices.Sorted(maps.Keys(sets)), AllModules) }

// Names returns the names with each set followed by its modules, so that a cache notices when a set
// changes.
func Names(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(append(out, n), sets[n]...)
	}
	return out
}

// MissingError is the error for a module that the kernel has neither as a file nor built in.
type MissingError struct {
	Name    string // as given
	Release string // of the kernel
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("kernel %s has no module %s", e.Release, e.Name)
}

// Unwrap returns ErrNoModule.
func (e *MissingError) Unwrap() error { return ErrNoModule }

// TreeFile is a file of a kernel's modules.
type TreeFile struct {
	Path string // such as "lib/modules/6.12.95/kernel/fs/fuse/fuse.ko"
	Data []byte // uncompressed
}

// Tree returns the files below lib/modules that modprobe needs for the named modules, their
// dependencies, and the modules of a guest: the modules themselves and the lists of built-in
// modules, sorted by path. depmod makes its index from them. A name may be a set: see Sets. An
// unknown name is a *MissingError.
func (p *Package) Tree(names ...string) ([]TreeFile, error) {
	r := resolver{p: p, done: map[string]bool{}, open: map[string]bool{}}
	optional := slices.Clone(GuestModules())
	for _, name := range names {
		known := canonical(name)
		switch {
		case name == AllModules:
			optional = slices.AppendSeq(optional, maps.Keys(p.modules))
		case sets[name] != nil:
			optional = append(optional, sets[name]...)
		case p.builtin[known] || p.modules[known].read != nil:
			optional = append(optional, known)
		default:
			return nil, &MissingError{name, p.Release}
		}
	}
	slices.Sort(optional)
	var out []TreeFile
	for _, name := range slices.Compact(optional) {
		err := r.add(canonical(name), nil)
		if errors.Is(err, ErrNoModule) && p.modules[canonical(name)].read == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("collect modules of kernel %s: %w", p.Release, err)
		}
	}
	for name := range r.done {
		f := p.modules[name]
		stem, _, _ := strings.Cut(f.path, ".ko")
		data, err := f.load()
		if err != nil {
			return nil, fmt.Errorf("read module %s: %w", f.path, err)
		}
		out = append(out, TreeFile{strings.TrimPrefix(stem, "usr/") + ".ko", data})
	}
	for _, l := range p.lists {
		b, err := l.read()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", l.name, err)
		}
		out = append(out, TreeFile{path.Join("lib/modules", p.Release, path.Base(l.name)), b})
	}
	slices.SortFunc(out, func(a, b TreeFile) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}
