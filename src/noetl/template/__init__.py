"""Templates in playbooks: parsed once, evaluated natively, sandboxed and within a budget of work.

Start with `Template` and `Scope`. Nothing here knows playbooks or does input or output.
"""

from noetl.template.budget import Budget
from noetl.template.evaluation import ON_SECRET
from noetl.template.lookup import UNDEFINED, Read, Scope, View
from noetl.template.template import Template, is_template

__all__ = ["ON_SECRET", "UNDEFINED", "Budget", "Read", "Scope", "Template", "View", "is_template"]
