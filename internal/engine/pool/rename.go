package pool

// Rename moves the pool of a renamed snapshot to its new tag. The shells are made anew.
func (p *Pools) Rename(tag, to string) {
	size, set := p.buckets.sizes()[tag]
	p.Forget(tag)
	if !set {
		return
	}
	if err := p.Set(to, size); err != nil {
		p.cfg.Log.Warn("keep the pool of a renamed snapshot", "tag", to, "size", size, "err", err)
	}
}
