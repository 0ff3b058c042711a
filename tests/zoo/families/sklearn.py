"""Estimators of scikit-learn and of gradient boosting."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 5}, {"B": 12})
ARRAYS = {"zipmap": False}


def net(name: str, *steps: Any, target: str = "classes", **more: Any) -> Net:
    """One estimator, or a pipeline."""
    spec = {
        "steps": [s if isinstance(s, tuple) else (s, {}) for s in steps],
        "target": target,
        **more,
    }
    tool = more.get("tool", "sklearn")
    kind = "unit B,8" if more.get("positive") else "float B,8"
    return Net(name, "sklearn_net.make", spec, {"x": kind}, SIZES, (f"{tool}-dynamic",))


def classes(name: str, *steps: Any, **more: Any) -> Net:
    """A classifier whose probabilities are an array."""
    return net(name, *steps, options=ARRAYS, **more)


SCALE = "sklearn.preprocessing:StandardScaler"
SMALL = {"n_estimators": 10, "random_state": 0}
NETS = (
    classes("logistic", SCALE, "sklearn.linear_model:LogisticRegression"),
    net("logistic-zipmap", "sklearn.linear_model:LogisticRegression"),
    classes("forest", ("sklearn.ensemble:RandomForestClassifier", SMALL)),
    net("forest-numbers", ("sklearn.ensemble:RandomForestRegressor", SMALL), target="numbers"),
    classes("boosting", ("sklearn.ensemble:GradientBoostingClassifier", SMALL)),
    classes("boosting-two", ("sklearn.ensemble:GradientBoostingClassifier", SMALL), target="two"),
    net(
        "boosting-numbers", ("sklearn.ensemble:GradientBoostingRegressor", SMALL), target="numbers"
    ),
    classes("hist-boosting", ("sklearn.ensemble:HistGradientBoostingClassifier", {"max_iter": 10})),
    net(
        "hist-boosting-numbers",
        ("sklearn.ensemble:HistGradientBoostingRegressor", {"max_iter": 10}),
        target="numbers",
    ),
    net("extra-trees", ("sklearn.ensemble:ExtraTreesRegressor", SMALL), target="both"),
    net("tree", ("sklearn.tree:DecisionTreeRegressor", {"max_depth": 4}), target="numbers"),
    classes("tree-classes", ("sklearn.tree:DecisionTreeClassifier", {"max_depth": 4})),
    classes("bagging", ("sklearn.ensemble:BaggingClassifier", SMALL)),
    classes("ada", ("sklearn.ensemble:AdaBoostClassifier", SMALL)),
    net("isolation-forest", ("sklearn.ensemble:IsolationForest", SMALL), target="none"),
    classes("svc", ("sklearn.svm:SVC", {"probability": True})),
    classes("svc-votes", ("sklearn.svm:SVC", {"kernel": "poly"})),
    classes("nu-svc", "sklearn.svm:NuSVC"),
    net("svr", "sklearn.svm:SVR", target="numbers"),
    net("one-class-svm", "sklearn.svm:OneClassSVM", target="none"),
    net("linear-svc", "sklearn.svm:LinearSVC"),
    net("linear", "sklearn.linear_model:LinearRegression", target="numbers"),
    net(
        "ridge-poly",
        ("sklearn.preprocessing:PolynomialFeatures", {"degree": 2}),
        "sklearn.linear_model:Ridge",
        target="numbers",
    ),
    net("lasso", "sklearn.linear_model:Lasso", target="numbers"),
    net("poisson", "sklearn.linear_model:PoissonRegressor", target="counts"),
    classes("sgd", ("sklearn.linear_model:SGDClassifier", {"loss": "log_loss"})),
    classes("perceptron", "sklearn.linear_model:Perceptron"),
    classes("mlp", ("sklearn.neural_network:MLPClassifier", {"max_iter": 20})),
    net("mlp-numbers", ("sklearn.neural_network:MLPRegressor", {"max_iter": 20}), target="numbers"),
    classes("knn", "sklearn.neighbors:KNeighborsClassifier"),
    net(
        "knn-numbers",
        ("sklearn.neighbors:KNeighborsRegressor", {"weights": "distance"}),
        target="numbers",
    ),
    classes("naive-bayes", "sklearn.naive_bayes:GaussianNB"),
    classes("bernoulli-bayes", "sklearn.naive_bayes:BernoulliNB"),
    classes("multinomial-bayes", "sklearn.naive_bayes:MultinomialNB", positive=True),
    classes("lda", "sklearn.discriminant_analysis:LinearDiscriminantAnalysis"),
    classes("qda", "sklearn.discriminant_analysis:QuadraticDiscriminantAnalysis"),
    net("gaussian-process", "sklearn.gaussian_process:GaussianProcessRegressor", target="numbers"),
    net("kmeans", ("sklearn.cluster:KMeans", {"n_clusters": 3, "n_init": 1}), target="none"),
    net("mixture", ("sklearn.mixture:GaussianMixture", {"n_components": 3}), target="none"),
    net("pca", ("sklearn.decomposition:PCA", {"n_components": 3}), target="none"),
    net(
        "kernel-pca",
        ("sklearn.decomposition:KernelPCA", {"n_components": 3, "kernel": "rbf"}),
        target="none",
    ),
    net("min-max", "sklearn.preprocessing:MinMaxScaler", target="none"),
    net("robust", "sklearn.preprocessing:RobustScaler", target="none"),
    net("power", "sklearn.preprocessing:PowerTransformer", target="none"),
    net("normalizer", "sklearn.preprocessing:Normalizer", target="none"),
    net(
        "bins",
        ("sklearn.preprocessing:KBinsDiscretizer", {"encode": "ordinal", "n_bins": 4}),
        target="none",
    ),
    net(
        "one-hot-bins",
        ("sklearn.preprocessing:KBinsDiscretizer", {"n_bins": 4, "encode": "onehot-dense"}),
        target="none",
    ),
    net("imputer", "sklearn.impute:SimpleImputer", target="none"),
    net("knn-imputer", "sklearn.impute:KNNImputer", target="none"),
    net("binarizer", "sklearn.preprocessing:Binarizer", target="none"),
    classes(
        "select-best",
        ("sklearn.feature_selection:SelectKBest", {"k": 3}),
        "sklearn.linear_model:LogisticRegression",
    ),
    net("pls", "sklearn.cross_decomposition:PLSRegression", target="numbers"),
    net(
        "lightgbm",
        ("lightgbm:LGBMClassifier", {"n_estimators": 10, "verbose": -1}),
        tool="lightgbm",
    ),
    net(
        "lightgbm-numbers",
        ("lightgbm:LGBMRegressor", {"n_estimators": 10, "verbose": -1}),
        target="numbers",
        tool="lightgbm",
    ),
    net("xgboost", ("xgboost:XGBClassifier", {"n_estimators": 10}), tool="xgboost"),
    net(
        "xgboost-numbers",
        ("xgboost:XGBRegressor", {"n_estimators": 10}),
        target="numbers",
        tool="xgboost",
    ),
)
