"""Units that differ: every unit has its own effects, and the distribution of these is learned from all units.

Unit i has effects `xi_i ~ N(0, I)` and weights `w_i = T(xi_i)`; its readings scatter about the model at these weights.
All that is no unit's own (the map T, the shared weights, the noise) maximises the marginal likelihood

    L = sum_i log p(y_i),    p(y_i) = int p(y_i | T(xi)) N(xi; 0, I) dxi

- `units`: the data by unit. `family`: what all units have in common. `modes`: a unit's most probable effects.
- `marginal`: the integral, by Laplace's method or importance sampling. `estimate`: its maximum.
- `uncertainty`: how well the maximum is known. `conditional`: effects of a unit given readings.
- `steering`: the same by guided paths, where importance sampling fails.
"""
