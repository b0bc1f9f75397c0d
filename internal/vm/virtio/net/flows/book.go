package flows

// book is a bounded table by key. A new entry replaces the least recently used one.
type book[E any] struct {
	max  int
	at   map[key]int32 // index in all; nil until there is an entry
	all  []entry[E]
	free []int32
	// newest and oldest are the ends of the list by use, or the constant none if it is empty.
	newest, oldest int32
}

type entry[E any] struct {
	key          key
	value        E
	newer, older int32
}

const none = -1

func newBook[E any](most int) book[E] { return book[E]{max: most, newest: none, oldest: none} }

func (b *book[E]) len() int { return len(b.at) }

// get returns the entry of k and makes it the newest. It returns nil if k has no entry.
func (b *book[E]) get(k key) *E {
	if b.newest != none && b.all[b.newest].key == k { // nearly always true in a transfer
		return &b.all[b.newest].value
	}
	i, ok := b.at[k]
	if !ok {
		return nil
	}
	b.unlink(i)
	b.link(i)
	return &b.all[i].value
}

// add returns a zero entry for k. It creates the entry if necessary.
func (b *book[E]) add(k key) *E {
	e := b.get(k)
	if e == nil {
		i := b.slot()
		b.all[i].key = k
		b.at[k] = i
		b.link(i)
		e = &b.all[i].value
	}
	*e = *new(E)
	return e
}

// slot returns the index of a new entry.
func (b *book[E]) slot() int32 {
	if b.at == nil {
		b.at = map[key]int32{}
	}
	if len(b.at) >= b.max {
		b.remove(b.all[b.oldest].key)
	}
	if n := len(b.free); n > 0 {
		i := b.free[n-1]
		b.free = b.free[:n-1]
		return i
	}
	b.all = append(b.all, entry[E]{})
	return int32(len(b.all) - 1)
}

func (b *book[E]) remove(k key) {
	i, ok := b.at[k]
	if !ok {
		return
	}
	delete(b.at, k)
	b.unlink(i)
	b.free = append(b.free, i)
}

func (b *book[E]) link(i int32) {
	b.all[i].newer, b.all[i].older = none, b.newest
	if b.newest != none {
		b.all[b.newest].newer = i
	} else {
		b.oldest = i
	}
	b.newest = i
}

func (b *book[E]) unlink(i int32) {
	e := &b.all[i]
	if e.newer != none {
		b.all[e.newer].older = e.older
	} else {
		b.newest = e.older
	}
	if e.older != none {
		b.all[e.older].newer = e.newer
	} else {
		b.oldest = e.newer
	}
}

// each visits the entries from the newest to the oldest.
func (b *book[E]) each(f func(k key, v *E)) {
	for i := b.newest; i != none; i = b.all[i].older {
		f(b.all[i].key, &b.all[i].value)
	}
}
