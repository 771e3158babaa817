// Which lanes of two timelines are the same, so that they stand side by side. A lane that only one of
// them has is an empty one in the other: a label behind the tile's own, without slices.
(function () {
  "use strict";

  // By what lanes are known in both tiles; lanes of one tile that are called alike are counted.
  function keys_of(tile) {
    const seen = new Map();
    return tile.labels.slice(0, tile.lanes).map(([rank, text]) => {
      const key = rank + "/" + text, number = seen.get(key) || 0;
      seen.set(key, number + 1);
      return JSON.stringify([rank, text, number]);
    });
  }

  const rank_of = (key) => JSON.parse(key)[0];

  // All keys: those of the first in their order, and each other one of the second behind the one of
  // its rank that it follows there. Lanes of no rank come last.
  function merged(first, second) {
    const known = new Set(first), followers = new Map(), own = new Map();
    const add = (map, at, key) => map.set(at, [...(map.get(at) || []), key]);
    let before = null;
    second.forEach((key) => {
      const rank = rank_of(key);
      if (known.has(key)) before = { key, rank };
      else add(followers, before && before.rank === rank ? before.key : rank, key);
    });
    first.forEach((key) => add(own, rank_of(key), key));
    const last = (rank) => (rank < 0 ? Infinity : rank);
    const ranks = [...new Set([...first, ...second].map(rank_of))].sort((a, b) => last(a) - last(b));
    const with_followers = (key) => [key, ...(followers.get(key) || [])];
    return ranks.flatMap((rank) => [...(followers.get(rank) || []), ...(own.get(rank) || []).flatMap(with_followers)]);
  }

  // Gives both tiles, of which `matched` is the other, labels for all lanes of either: `places` has
  // where each stands, `beside` which of the other's lanes it stands beside.
  function match(tiles) {
    if (tiles[0].matched === tiles[1] && tiles[1].matched === tiles[0]) return;
    const own = tiles.map(keys_of), order = merged(...own);
    const labels = new Map([...own[1].map((key, lane) => [key, tiles[1].labels[lane]]), ...own[0].map((key, lane) => [key, tiles[0].labels[lane]])]);
    const lanes = tiles.map((tile, side) => {
      const has = new Set(own[side]), lacks = order.filter((key) => !has.has(key));
      tile.labels = [...tile.labels.slice(0, tile.lanes), ...lacks.map((key) => labels.get(key))];
      return new Map([...own[side], ...lacks].map((key, lane) => [key, lane]));
    });
    tiles.forEach((tile, side) => {
      tile.matched = tiles[1 - side];
      tile.places = [];
      tile.beside = [];
      order.forEach((key, place) => {
        const lane = lanes[side].get(key);
        tile.places[lane] = place;
        tile.beside[lane] = lanes[1 - side].get(key);
      });
    });
  }

  window.hvdtuneSideBySide = { match };
})();
