"""From a configuration and data to a `Fit`: the one road, used from Python and by the run folder.

Belongs here: where names become objects, the registry of methods, the choice of a method, training or drawing, the fit
and its file. Does not belong here: stages and folders of a run (`runs`), and how a method works inside (`posteriors`,
`samplers`, `inference`).
"""
